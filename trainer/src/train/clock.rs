//! Processor time, which depends less on the load of the machine than wall-clock time does.

/// Returns the user and system time of this process so far, in seconds; 0 on systems without `/proc`.
pub fn cpu_seconds() -> f64 {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else {
        return 0.0;
    };
    // The program's name, in brackets, may hold spaces; what follows it may not. Times are in 1/100 s.
    let mut fields = stat
        .rsplit(')')
        .next()
        .unwrap_or("")
        .split_whitespace()
        .skip(11);
    let mut ticks = || {
        fields
            .next()
            .and_then(|field| field.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    (ticks() + ticks()) / 100.0
}
