#!/usr/bin/env bash
# Runs the engine's kernel tests on an emulated CPU with AVX-512 VBMI, for machines without it. Bochs boots a Debian kernel
# whose only program are the tests. It is a few hundred times slower than a CPU, and checks results, not speed.
#
#   tests/emulated/run.sh [FILTER...]     runs tests whose names begin with FILTER; default: all that compare kernels
set -euo pipefail
cd "$(dirname "$0")/../.."
here=tests/emulated
out=target/emulated
filters=("$@")
[ $# -gt 0 ] || filters=(kernel:: quantizer::tests scan::)

needs=()
for pair in bochs:bochs bochs:bochs-term xorriso:xorriso busybox:busybox-static cpio:cpio script:bsdutils; do
  command -v "${pair%%:*}" >/dev/null || needs+=("${pair#*:}")
done
[ -e /usr/lib/ISOLINUX/isolinux.bin ] || needs+=(isolinux syslinux-common)
[ -e /usr/share/bochs/BIOS-bochs-latest ] || needs+=(bochsbios)
[ -e /usr/share/vgabios/vgabios.bin ] || needs+=(vgabios)
[ ${#needs[@]} -eq 0 ] && [ -e "$out/vmlinuz" ] || apt-get update -qq
if [ ${#needs[@]} -gt 0 ]; then
  echo "installing ${needs[*]}" >&2
  apt-get install -y -qq --no-install-recommends "${needs[@]}" >/dev/null ||
    { echo "emulated: error: install these Debian packages first: ${needs[*]}" >&2; exit 1; }
fi

rm -rf "$out/root" "$out/iso"
mkdir -p "$out"/{root/{bin,proc,sys,dev,tmp,lib64,lib/x86_64-linux-gnu},iso/isolinux}
if [ ! -e "$out/vmlinuz" ]; then
  kernel=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9][^ ]*\).*/\1/p' | head -1)
  (cd "$out" && apt-get download "$kernel" && dpkg-deb -x "$kernel"_*.deb kernel)
  cp "$out"/kernel/boot/vmlinuz-* "$out/vmlinuz"
  rm -rf "$out/kernel" "$out"/*.deb
fi

engine=$(cargo test --workspace --lib --no-run 2>&1 | tee /dev/stderr | sed -n 's/.*(\(.*deps\/mopqdb-[0-9a-f]*\))$/\1/p')
objcopy --strip-debug "$engine" "$out/root/engine"
for library in $(ldd "$engine" | grep -o '/[^ ]*'); do
  cp -L "$library" "$out/root$library"
done
cp "$(command -v busybox)" "$out/root/bin/busybox"
for name in sh mount echo grep cut tr cat sleep poweroff; do
  ln -sf busybox "$out/root/bin/$name"
done
install -m 755 "$here/init" "$out/root/init"
printf '%s\n' "${filters[@]}" > "$out/root/filters"
(cd "$out/root" && find . | cpio --quiet -o -H newc) > "$out/iso/initrd"

cp "$out/vmlinuz" "$out/iso/vmlinuz"
cp /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32 "$out/iso/isolinux/"
# Bochs 2.7 reports wrong sizes for the saved state of protection keys and for compacted states. Without these three features
# (pku, xsaves, xsavec) the kernel accepts the sizes and enables AVX-512.
cat > "$out/iso/isolinux/isolinux.cfg" <<'CFG'
default linux
prompt 0
label linux
  kernel /vmlinuz
  initrd /initrd
  append console=ttyS0 quiet mitigations=off tsc=reliable lpj=1000000 panic=-1 clearcpuid=515,323,321
CFG
xorriso -as mkisofs -quiet -o "$out/boot.iso" -b isolinux/isolinux.bin -c isolinux/boot.cat \
  -no-emul-boot -boot-load-size 4 -boot-info-table "$out/iso"
cat > "$out/bochsrc" <<RC
cpu: model=corei3_cnl, count=1, ips=100000000, reset_on_triple_fault=0
memory: guest=1024, host=1024
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/vgabios/vgabios.bin
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata0-master: type=cdrom, path=$PWD/$out/boot.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=$PWD/$out/serial.txt
log: $PWD/$out/bochs.log
clock: sync=none
display_library: term
panic: action=fatal
RC
# Debian's Bochs waits for a command to its debugger.
echo c > "$out/commands"
: > "$out/serial.txt"
TERM=xterm script -qec "bochs -q -f $PWD/$out/bochsrc -rc $out/commands" /dev/null </dev/null >"$out/screen.txt" 2>&1 &
machine=$!
tail -n +1 -f "$out/serial.txt" &
shown=$!
# Bochs treats SIGTERM as a command to its debugger, so it is killed. If the machine is off, there is nothing to kill.
trap 'kill $shown; pkill -KILL -f "bochs.* -f $PWD/$out/bochsrc" || :' EXIT
until grep -a -q '^ended: ' "$out/serial.txt" || ! kill -0 $machine 2>/dev/null; do
  sleep 2
done
sleep 1 # until the last lines are shown
grep -a -q '^ended: 0' "$out/serial.txt" ||
  { echo "emulated: error: not all tests passed, or the machine did not start; see $out/serial.txt and bochs.log" >&2; exit 1; }
