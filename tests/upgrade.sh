#!/bin/sh
# Upgrades a cluster of real nodes from one program to another, node by node, under load: see tests/tests/nodes/upgrade.rs.
#
#     tests/upgrade.sh OLD_BINARY NEW_BINARY
#
# OLD_BINARY is the `norn` that is to be upgraded from, NEW_BINARY the one to be upgraded to, built from this
# tree. Nodes of OLD_BINARY write the logs that nodes of NEW_BINARY start on. Ends with 0 if nothing acknowledged was lost and
# nothing was held twice.
set -eu

if [ $# -ne 2 ]; then
    echo "usage: $0 OLD_BINARY NEW_BINARY" >&2
    exit 2
fi
old=$(realpath -e -- "$1")
new=$(realpath -e -- "$2")
cd "$(dirname -- "$0")/.."
for binary in "$old" "$new"; do
    printf '%s: %s\n' "$binary" "$("$binary" --version)"
done
NORN_OLD_BINARY=$old NORN_NEW_BINARY=$new exec cargo test --locked -p norn-tests --test nodes upgrade:: -- --nocapture
