#!/bin/sh
# Checks how built files are linked. Usage: hardening.sh COMPILE_COMMANDS FILE...
set -eu
commands=$1
shift
failures=0
refuse() {
    echo "hardening: $*" >&2
    failures=1
}

for file in "$@"; do
    segments=$(readelf -lW "$file")
    dynamic=$(readelf -dW "$file")
    echo "$segments" | grep -q 'GNU_RELRO' || refuse "$file has no GNU_RELRO segment"
    echo "$dynamic" | grep -Eq 'BIND_NOW|Flags:.* NOW' || refuse "$file is not bound at start"
    echo "$dynamic" | grep -q 'TEXTREL' && refuse "$file has text relocations"
    echo "$dynamic" | grep -Eq 'RPATH|RUNPATH' && refuse "$file has a library search path"
    echo "$segments" | grep -q 'GNU_STACK' || refuse "$file says nothing about its stack"
    echo "$segments" | grep 'GNU_STACK' | grep -q 'E' && refuse "$file wants an executable stack"
    echo "$segments" | grep -Eq ' (RWE|WE) ' && refuse "$file has a segment that is written and executed"
    readelf -hW "$file" | grep -q 'Type: *DYN' || refuse "$file is not position independent"
    readelf --dyn-syms -W "$file" | grep -q '__stack_chk_fail' || refuse "$file has no stack protector"
    # Code that is made at run time, memory that bypasses operator new, other programs.
    for name in mprotect pkey_mprotect memfd_create malloc calloc realloc posix_memalign system popen; do
        case $file in *bin/*) continue ;; esac
        readelf --dyn-syms -W "$file" | grep -Eq " UND $name(@| |\$)" && refuse "$file calls $name"
    done
done

# Every file of the libraries and the command is compiled with the checks.
python3 - "$commands" <<'END' || failures=1
import json, sys
bad = [e["file"] for e in json.load(open(sys.argv[1]))
       if any("/" + part + "/" in e["file"] for part in ("src", "cli")) and "/tests/" not in e["file"]
       and not ("-D_FORTIFY_SOURCE=" in e["command"] and "-fstack-protector-strong" in e["command"])]
for file in bad:
    print("hardening: not compiled with the checks:", file, file=sys.stderr)
sys.exit(bool(bad))
END
exit $failures
