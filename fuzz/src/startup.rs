use mpj::boot::pmi::mapping;
use mpj::boot::pmi::message::{LineDecoder, MAX_LINE, PmiReply, request};
use mpj::boot::rendezvous::gathering::{Gathering, Step};
use mpj::boot::rendezvous::hostlist::first_host;
use mpj::boot::rendezvous::messages::{Joining, ToServer};
use mpj::boot::rendezvous::sources::RendezvousAddress;
use mpj::boot::wire::{ProtocolVersion, VERSION};
use mpj_devices::{HostId, Hosts};

use crate::input::Input;

/// Feeds texts of process managers, sites and ranks to their parsers, and checks what these accept.
pub fn startup(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.below(4) {
        0 => pmi_lines(&mut input),
        1 => pmi_map(&mut input),
        2 => names(&mut input),
        _ => gather(&mut input),
    }
}

/// Returns a text of fewer than `limit` tokens, which is often almost valid.
fn text(input: &mut Input<'_>, tokens: &[&str], limit: usize) -> String {
    (0..input.below(limit)).map(|_| input.pick(tokens)).collect()
}

fn pmi_lines(input: &mut Input<'_>) {
    const TOKENS: [&str; 12] =
        ["cmd=", "rc=", "msg=", "value=", "a", "é", " ", "=", "0", "-1", "\n", "99999999999999999999"];
    let mut wire = text(input, &TOKENS, 80).into_bytes();
    if input.below(8) == 7 {
        wire.extend(std::iter::repeat_n(b'x', MAX_LINE + input.below(3)));
    }
    wire.extend(input.bytes(20));
    let (mut decoder, mut lines, mut rest) = (LineDecoder::default(), Vec::new(), wire.as_slice());
    while !rest.is_empty() {
        let (now, later) = rest.split_at(rest.len().min(1 + input.below(30)));
        decoder.push(now);
        rest = later;
        loop {
            match decoder.take_line() {
                Ok(Some(line)) => lines.push(line),
                Ok(None) => break,
                Err(why) => {
                    assert!(wire.split(|byte| *byte == b'\n').any(|line| line.len() > MAX_LINE), "{why}");
                    return;
                }
            }
        }
    }
    let mut wanted: Vec<&[u8]> = wire.split(|byte| *byte == b'\n').collect();
    wanted.pop();
    assert_eq!(lines, wanted);
    for line in lines {
        let Ok(reply) = PmiReply::parse(&line) else { continue };
        let is_expected = reply.expect("a").is_ok();
        assert!(!is_expected || reply.get("cmd") == Some("a") && matches!(reply.get("rc"), None | Some("0")));
        assert_eq!(reply.number::<i32>("rc").ok(), reply.get("rc").and_then(|text| text.parse().ok()));
    }
    let value = text(input, &TOKENS, 20);
    if let Ok(line) = request("put", &[("value", &value)]) {
        let reply = PmiReply::parse(line.strip_suffix(b"\n").expect("a whole line")).expect("a valid line");
        assert_eq!((reply.get("cmd"), reply.get("value")), (Some("put"), Some(value.as_str())));
    }
}

fn pmi_map(input: &mut Input<'_>) {
    const TOKENS: [&str; 12] =
        ["(0,1,2)", "(1,2,1)", "(", ")", ",", "[", "]x", "0", "3", "4294967295", "99999999999", "-"];
    let map = format!("(vector,{})", text(input, &TOKENS, 30));
    let size = 1 + input.below(1000) as u32;
    if let Ok(runs) = mapping::place(&map, size) {
        let hosts = Hosts::from_runs(runs.into_iter().map(|(host, ranks)| (HostId(host), ranks)));
        assert_eq!(hosts.map(|hosts| hosts.size()), Ok(size), "{map}");
    }
}

fn names(input: &mut Input<'_>) {
    const TOKENS: [&str; 13] = ["n", "rack", "0", "12", "[", "]", "-", ",", ":", ".", "é", " ", "65536"];
    let text = text(input, &TOKENS, 20);
    if let Some(host) = first_host(&text) {
        assert!(!host.is_empty() && !host.contains(['[', ']', ',', ' ', 'é']), "{text}: {host}");
    }
    if let Ok(address) = RendezvousAddress::parse(&text) {
        assert_eq!(RendezvousAddress::parse(&address.to_string()), Ok(address), "{text}");
    }
}

fn gather(input: &mut Input<'_>) {
    let size = 2 + input.below(4) as u32;
    let mut gathering = Gathering::new(size, "a".into());
    let mut is_placed = false;
    while !input.is_empty() {
        let rank = input.below(6) as u32;
        let mpj_version = String::new();
        let version = if input.below(20) == 19 { 0 } else { VERSION };
        let outcome = match input.below(6) {
            0..=2 => {
                let size = if input.below(20) == 19 { input.edge() as u32 } else { size };
                let version = ProtocolVersion { version, mpj_version };
                let host = input.pick(&["a", "b", "c"]).to_owned();
                gathering
                    .take(rank, ToServer::Join(Box::new(Joining { version, size, host, at: "é".repeat(9) })))
            }
            3 | 4 => gathering.take(rank, ToServer::Ready),
            _ => gathering.closed(rank),
        };
        if let Err(why) = outcome {
            assert!(!why.is_empty());
            return;
        }
        assert!(!gathering.have_all(Step::Ready) || is_placed);
        if gathering.have_all(Step::Joined) && !is_placed {
            let runs = gathering.place().into_iter().map(|(host, ranks)| (HostId(host), ranks));
            assert_eq!(Hosts::from_runs(runs).map(|hosts| hosts.size()), Ok(size));
            is_placed = true;
        }
    }
    assert_eq!(gathering.missing(Step::Joined) == "ranks", gathering.have_all(Step::Joined));
}
