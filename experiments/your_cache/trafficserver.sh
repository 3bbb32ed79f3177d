#!/bin/sh
# Starts Traffic Server 9 with the files of Debian's package in a folder of its own: at 127.0.0.1:9084, in front of
# 127.0.0.1:9080. It serves stale pages while the origin fails.
set -eu
root=${STOCKADE_FOLDER:?is the folder of its files}/trafficserver
mkdir -p "$root/etc" "$root/run" "$root/log" "$root/cache"
find /etc/trafficserver -maxdepth 1 -type f -exec cp {} "$root/etc" \;
cat >"$root/runroot.yaml" <<END
prefix: $root
exec_prefix: /usr
bindir: /usr/bin
sbindir: /usr/sbin
sysconfdir: $root/etc
datadir: $root/cache
includedir: /usr/include
libdir: /usr/lib/trafficserver
libexecdir: /usr/lib/trafficserver/modules
localstatedir: $root
runtimedir: $root/run
logdir: $root/log
cachedir: $root/cache
END
echo "$root/cache 256M" >"$root/etc/storage.config"
echo "map / http://127.0.0.1:9080/" >"$root/etc/remap.config"
cat >>"$root/etc/records.config" <<END
CONFIG proxy.config.http.server_ports STRING 9084:ip-in=127.0.0.1
CONFIG proxy.config.admin.user_id STRING #-1
CONFIG proxy.config.http.transaction_no_activity_timeout_out INT 5
CONFIG proxy.config.http.cache.open_write_fail_action INT 5
END
exec traffic_server --run-root="$root/runroot.yaml"
