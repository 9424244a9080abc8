//! Jobs without a launcher whose ports or addresses are restricted, and jobs over IPv6.

use std::io::ErrorKind;
use std::net::TcpListener;

use super::Test;
use super::env::{codes, has_error, run_job};
use super::process_managers::{assert_pairs, run_on_hosts};
use super::program::say;

pub(crate) const TESTS: &[Test] = &[
    ("range_of_ports_has_the_documented_length", range_of_ports_has_the_documented_length),
    ("public_addresses_are_refused", public_addresses_are_refused),
    ("hosts_reach_each_other_over_ipv6", hosts_reach_each_other_over_ipv6),
];

/// Returns the first of consecutive ports that are free on the loopback. They are neither those of `free_port`, nor
/// those that Linux gives to sockets without a port.
fn free_ports(count: u16) -> u16 {
    let is_free = |port: u16| {
        let taken =
            |ip: &str| matches!(TcpListener::bind((ip, port)), Err(e) if e.kind() == ErrorKind::AddrInUse);
        !taken("127.0.0.1") && !taken("::1")
    };
    let mut starts = (0..500).map(|at| 30_000 + (std::process::id() as u16 % 500 + at) % 500 * 5);
    starts.find(|first| (*first..first + count).all(is_free)).unwrap()
}

/// Two hosts share the loopback's ports: one for each rank, one for the watches of each host, and one for the root.
fn range_of_ports_has_the_documented_length() {
    let run = |count: u16| {
        let first = free_ports(count);
        let range = format!("{first}-{}", first + count - 1);
        run_job("ab", "pairs", &[("MPJ_NIO_PORTS", &range), ("MPJ_DEVICES", "niodev")])
    };
    let ended = run(5);
    assert_eq!(codes(&ended), [Some(0); 2], "{ended:#?}");
    for count in 1..5 {
        let ended = run(count);
        assert!(ended.iter().all(|ended| ended.code.is_some_and(|code| code != 0)), "{count}: {ended:#?}");
        assert!(ended.iter().any(|ended| has_error(ended, "MPJ_NIO_PORTS")), "{count}: {ended:#?}");
    }
}

/// Hosts whose only addresses are public ones.
fn public_addresses_are_refused() {
    let script = r#"
        for host in 0 1; do
          ip -n "$NETNS_PREFIX-h$host" link del docker0
          ip -n "$NETNS_PREFIX-h$host" addr flush dev eth0
          ip -n "$NETNS_PREFIX-h$host" addr add "203.0.113.1$host/24" dev eth0
        done
        export MPJ_SIZE=2 MPJ_RENDEZVOUS=203.0.113.10:7000 MPJ_SECRET=0123456789abcdef MPJ_RENDEZVOUS_TIMEOUT=5
        for security in auto none; do
          jobs=
          for rank in 0 1; do
            MPJ_NIO_SECURITY=$security MPJ_RANK=$rank $NETNS_EXEC h$rank exec "$@" & jobs="$jobs $!"
          done
          for job in $jobs; do wait $job; echo "$security $?"; done
        done"#;
    let Some(ended) = run_on_hosts(script, "fine") else { return };
    let codes: Vec<&str> =
        ended.out.iter().map(String::as_str).filter(|line| !line.starts_with("rank ")).collect();
    assert_eq!(codes, ["auto 1", "auto 1", "none 0", "none 0"], "{ended:#?}");
    let why = "203.0.113.10 (the address of rank 0) is a public address";
    let is_why = |line: &String| line.contains(why) && line.contains("MPJ_NIO_SECURITY=none");
    assert!(ended.err.iter().any(is_why), "{ended:#?}");
}

/// Returns a script that runs `script` on hosts that reach each other only over IPv6, and states the address of rank 0.
/// Returns `None`, and prints why, if this machine has no IPv6.
pub(crate) fn over_ipv6(script: &str) -> Option<String> {
    if !std::fs::exists("/proc/net/if_inet6").unwrap() {
        say("SKIPPED the kernel has no IPv6");
        return None;
    }
    let remove_v4 = "for host in 0 1 2; do ip -n $NETNS_PREFIX-h$host -4 addr flush dev eth0; done";
    Some(format!("{remove_v4}; export MPJ_RENDEZVOUS=[fd78::10]:7000; {script}"))
}

fn hosts_reach_each_other_over_ipv6() {
    let script = r#"
        export MPJ_SIZE=6 MPJ_SECRET=0123456789abcdef
        for rank in {0..5}; do MPJ_RANK=$rank $NETNS_EXEC h$((rank / 2)) exec "$@" & done
        code=0
        for job in $(jobs -p); do wait $job || { last=$?; [ $last -gt $code ] && code=$last; }; done
        exit $code"#;
    let Some(script) = over_ipv6(script) else { return };
    let Some(ended) = run_on_hosts(&script, "pairs") else { return };
    assert_pairs(&ended, "aabbcc", "shmdev");
    let ended = run_on_hosts(&script, "abort").unwrap();
    assert_eq!(ended.code, Some(42), "{ended:#?}");
    let ended = run_on_hosts(&script, "kill").unwrap();
    assert_eq!(ended.code, Some(137), "{ended:#?}");
}
