# Sourced by install_slurm and install_chromium: installs Debian packages and starts nothing.
#
# They set WHAT, PACKAGES, REQUIRED and a function `missing`, which prints the programs that are not
# there. The exit code is 0 where all are there, or where they cannot be installed by this user or on
# this machine (with the reason; 1 where REQUIRED is 1), and 1 where the installation failed.

NAME="$(basename "$0")"
LOCK_S="${CAMPAIGN_APT_LOCK_S:-600}" # so long it waits for another apt-get or dpkg

fail() {
    echo "$NAME: no $WHAT: $1" >&2
    exit 1
}

give_up() {
    [ "$REQUIRED" != 1 ] || fail "$1"
    echo "$NAME: no $WHAT: $1" >&2
    exit 0
}

# apt-get's own DPkg::Lock::Timeout covers dpkg's locks, but not those of the lists and the archives.
# RUNLEVEL: some packages' scripts would start a service, which a test machine must not run.
apt() {
    local output waits="" end=$((SECONDS + LOCK_S))
    until output="$(LC_ALL=C DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -q -y "$@" 2>&1)"; do
        if ! grep -Eq 'Could not get lock|is another process using it|locked by another' <<<"$output"; then
            echo "$output" >&2
            return 1
        fi
        [ "$SECONDS" -lt "$end" ] || fail "a lock was not free in $LOCK_S s: $output"
        [ -n "$waits" ] || echo "$NAME: waiting up to $LOCK_S s for a lock: $output" >&2
        waits=yes
        sleep 1
    done
    echo "$output"
}

install() {
    apt install --no-install-recommends "${PACKAGES[@]}"
}

if [ -z "$(missing)" ]; then
    echo "$NAME: $WHAT is already installed"
    exit 0
fi
command -v apt-get >/dev/null || give_up "no apt-get on this machine; install ${PACKAGES[*]} by hand"
[ "$(id -u)" = 0 ] || give_up "not root; as root: apt-get install ${PACKAGES[*]}"

echo "$NAME: apt-get install ${PACKAGES[*]}"
# The package lists may be out of date: then the first try fails, and the second one has new lists.
if ! apt-cache show "${PACKAGES[@]}" >/dev/null 2>&1 || ! install; then
    apt update || fail "apt-get update failed"
    install || fail "apt-get could not install ${PACKAGES[*]}"
fi
left="$(missing)"
[ -z "$left" ] || fail "installed, but still missing: ${left//$'\n'/ }"
echo "$NAME: installed $WHAT"
