use mpj::boot::pmix::get_reply;
use mpj::boot::pmix::job_info;
use mpj::boot::pmix::packer::Packer;

use crate::input::Input;
use crate::peak_memory;

/// Parses any bytes, or the statement of a job. A valid statement gives the host of each rank, even if it contains other
/// values. A statement with changed bytes or a wrong number of ranks gives an error or some hosts.
pub fn pmix(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    if input.flag() {
        let bytes = input.rest();
        parse(bytes);
        // A reply that reports success.
        let reply = [&[0, 0, 0, 1, 0, 0, 0, 0], bytes].concat();
        if let Ok(value) = get_reply::find(&reply, "") {
            assert!(value.len() < bytes.len());
        }
        return;
    }
    // The number and the name of each rank's host.
    let hosts: Vec<(u32, String)> =
        (0..input.below(9)).map(|_| (input.below(3) as u32, "h".repeat(input.below(3)))).collect();
    let mut reply = Packer::default().string("job").finish();
    let mut size = hosts.len() as u32;
    let is_changed = input.flag();
    if is_changed && input.flag() {
        size = input.edge() as u32;
    }
    reply.extend(Packer::default().kval_u32("pmix.job.size", size).finish());
    for (rank, (number, name)) in hosts.iter().enumerate() {
        let values = Packer::default().rank(rank as u32).kval_u32("pmix.nodeid", *number);
        let values = values.kval_string("pmix.hname", name);
        reply.extend(Packer::default().kval_object("pmix.pblob", &values.finish()).finish());
        if input.flag() {
            reply.extend(Packer::default().kval_object("other", input.bytes(9)).finish());
        }
    }
    if is_changed {
        for _ in 0..input.below(5) {
            let at = input.below(reply.len());
            reply[at] = input.byte();
        }
        parse(&reply[..reply.len() - input.below(4)]);
        return;
    }
    let placed = parse(&reply).expect("a valid statement");
    assert_eq!(placed.len(), hosts.len());
    for (rank, host) in hosts.iter().enumerate() {
        // Two ranks are on one host if they have the same number and name.
        let first = hosts.iter().position(|other| other == host).expect("this rank");
        assert_eq!(placed[rank], placed[first], "{hosts:?}");
        assert!(
            hosts[..rank]
                .iter()
                .enumerate()
                .all(|(other, at)| (placed[other] == placed[rank]) == (at == host))
        );
    }
}

/// Returns the host of each rank.
fn parse(reply: &[u8]) -> Option<Vec<u32>> {
    let (hosts, peak) = peak_memory::measure(|| job_info::parse(reply));
    assert!(peak <= 64 * reply.len() + (16 << 10), "{peak} bytes for {}", reply.len());
    match hosts {
        Ok(hosts) => {
            assert!(hosts.size() as usize <= reply.len());
            Some((0..hosts.size()).map(|rank| hosts.host_of(rank).expect("a rank").0).collect())
        }
        Err(why) => {
            assert!(!why.is_empty() && why.len() <= 200 + 4 * reply.len());
            None
        }
    }
}
