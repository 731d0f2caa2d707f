//! A seeded generator, so that a run depends on its seed and not on a library's version.
//!
//! A generator is made for one purpose (`Random::new(seed, "shuffle", epoch)`) and then dropped. So a checkpoint needs
//! none of its state, and a resumed run continues exactly like an uninterrupted one.

/// xoshiro256++ (Blackman and Vigna), seeded through splitmix64.
#[derive(Debug, Clone)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// Creates the generator for one purpose and turn.
    pub fn new(seed: u64, purpose: &str, turn: u64) -> Self {
        // FNV-1a of the purpose separates the streams of one seed.
        let name = purpose
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        let mut mix = seed ^ name.rotate_left(17) ^ turn.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let state = std::array::from_fn(|_| splitmix64(&mut mix));
        Self { state }
    }

    /// Returns 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Returns a uniform number in 0..n, without bias. Requires: n > 0.
    pub fn below(&mut self, n: usize) -> usize {
        let n = n as u64;
        // Reject the last, incomplete run of n values.
        let zone = u64::MAX - u64::MAX % n;
        loop {
            let x = self.next_u64();
            if x < zone {
                return (x % n) as usize;
            }
        }
    }

    /// Returns a uniform number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a standard normal number (Box-Muller; the second value is discarded).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Shuffles the items (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// Returns a random order of 0..n.
    pub fn order(&mut self, n: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..n as u32).collect();
        self.shuffle(&mut order);
        order
    }
}

fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_a_permutation_and_repeats_with_its_seed() {
        let order = Random::new(1, "shuffle", 3).order(1000);
        assert_eq!(order, Random::new(1, "shuffle", 3).order(1000));
        assert_ne!(order, Random::new(1, "shuffle", 4).order(1000));
        assert_ne!(order, Random::new(1, "start", 3).order(1000));
        let mut sorted = order;
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..1000));
    }

    #[test]
    fn normals_have_mean_0_and_variance_1() {
        let mut random = Random::new(7, "normal", 0);
        let draws: Vec<f64> = (0..20_000).map(|_| random.normal()).collect();
        let mean = draws.iter().sum::<f64>() / 20_000.0;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 20_000.0;
        assert!(
            mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05,
            "{mean} {variance}"
        );
    }
}
