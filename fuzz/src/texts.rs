use std::collections::BTreeMap;

use mpj::boot::agent::fuzzing::root_card;
use mpj::boot::pmi::message::{MAX_SEGMENTS, join_segments};
use mpj::boot::pmix::parse_address;
use mpj::boot::rendezvous::sources;
use mpj_devices::fuzzing::{card, port_range};

use crate::input::Input;

/// Feeds texts to the parsers of cards, ports, addresses, variables and values, and checks what these accept.
pub fn texts(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.below(6) {
        0 => root_cards(&mut input),
        1 => nio_cards(&mut input),
        2 => ports(&mut input),
        3 => pmix_addresses(&mut input),
        4 => variables(&mut input),
        _ => segments(&mut input),
    }
}

/// Returns a text of fewer than `limit` tokens, which is often almost valid.
fn text(input: &mut Input<'_>, tokens: &[&str], limit: usize) -> String {
    (0..input.below(limit)).map(|_| input.pick(tokens)).collect()
}

fn root_cards(input: &mut Input<'_>) {
    const SECRET: &str = "00000000000000ff-000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    const TOKENS: [&str; 10] = ["4/", "/", ",", SECRET, "10.0.0.1:5", "[fd00::1]:7", "-", "+1", "é", "0"];
    let text = text(input, &TOKENS, 8);
    if let Some(written) = root_card(&text) {
        assert_eq!(root_card(&written).as_ref(), Some(&written), "{text}");
    }
}

fn nio_cards(input: &mut Input<'_>) {
    const TOKENS: [&str; 10] = [
        "10.0.0.1:5",
        "[fd00::1]:7",
        ",",
        " ",
        "4096",
        "little-endian",
        "big-endian",
        "x",
        "99999999999",
        "é",
    ];
    let text = text(input, &TOKENS, 24);
    if let Some((addresses, written)) = card(text.as_bytes()) {
        assert!((1..=8).contains(&addresses), "{text}");
        assert_eq!(card(&written), Some((addresses, written.clone())), "{text}");
    }
    if let Some((_, written)) = card(input.rest()) {
        assert!(card(&written).is_some());
    }
}

fn ports(input: &mut Input<'_>) {
    const TOKENS: [&str; 9] = ["0", "1", "9", "40000", "65535", "65536", "-", "+", " "];
    let text = text(input, &TOKENS, 6);
    let Some((ports, written)) = port_range(&text, input.u32()) else { return };
    let (first, last) = written.split_once('-').expect("two ports");
    let (first, last): (u16, u16) = (first.parse().expect("a port"), last.parse().expect("a port"));
    assert!(first > 0 && ports.len() == usize::from(last - first).min(99) + 1, "{text}");
    assert!(ports.iter().all(|port| (first..=last).contains(port)), "{text}");
}

fn pmix_addresses(input: &mut Input<'_>) {
    const TOKENS: [&str; 10] =
        ["name.0", ";", "tcp4://", "tcp6://", "127.0.0.1", "[::1]", "::1", ":", "5000", "65536"];
    let text = text(input, &TOKENS, 9);
    if let Some(address) = parse_address(&text) {
        assert_eq!(parse_address(&format!("name.0;tcp4://{address}")), Some(address), "{text}");
    }
}

fn variables(input: &mut Input<'_>) {
    const NAMES: [&str; 18] = [
        "MPJ_RANK",
        "MPJ_SIZE",
        "MPJ_RENDEZVOUS",
        "MPJ_CONTROL",
        "JOB_COMPLETION_INDEX",
        "LWS_WORKER_INDEX",
        "LWS_GROUP_SIZE",
        "LWS_LEADER_ADDRESS",
        "SLURM_PROCID",
        "SLURM_STEP_ID",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_STEP_NODELIST",
        "SLURM_STEP_RESV_PORTS",
        "PMI_RANK",
        "RANK",
        "WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
    ];
    const VALUES: [&str; 12] =
        ["0", "1", "4", "-1", "99999999999", "h0:7000", "h0", "n[0-3]", "n[", "7000-7003", " 2", "é"];
    let set: BTreeMap<&str, &str> =
        (0..input.below(8)).map(|_| (input.pick(&NAMES), input.pick(&VALUES))).collect();
    let get = |name: &str| set.get(name).map(|value| (*value).to_owned());
    match sources::find(&get, input.flag()) {
        Ok(Some(found)) => {
            assert!(found.rank < found.size && found.address.is_none() == (found.size == 1), "{set:?}");
        }
        Ok(None) => assert!(!set.contains_key("MPJ_RENDEZVOUS"), "{set:?}"),
        Err(why) => assert!(!why.is_empty()),
    }
}

fn segments(input: &mut Input<'_>) {
    let cut: Vec<String> = (0..1 + input.below(MAX_SEGMENTS)).map(|_| "é".repeat(input.below(9))).collect();
    let get = |at: usize| Ok(format!("{}:{}", cut.len(), cut[at]));
    assert_eq!(join_segments(get), Ok(cut.concat()));
    // Segments that do not belong together.
    const TOKENS: [&str; 8] = ["0", "1", "2", "9", ":", "-", "x", "99999999999999999999"];
    let mut gets = 0;
    let joined = join_segments(|at| {
        assert_eq!(at, gets);
        gets += 1;
        Ok(text(input, &TOKENS, 4))
    });
    assert!(gets <= MAX_SEGMENTS && joined.err() != Some(String::new()));
}
