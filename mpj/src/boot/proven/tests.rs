//! Tests of the listener of agents and of rank 0 at a rendezvous.

use mpj_devices::JobKey;

use super::*;

fn identity(rank: u32) -> Arc<Identity> {
    let key = JobKey { job: 7, secret: [1; 32] };
    Arc::new(Identity { key: Arc::new(key), rank, size: 3, purpose: b"test" })
}

/// Connects as peer 1. Returns the connection after its proof, the bytes that it has sent, and the number of bytes that
/// it has received.
fn connect_and_record(listener: &mut ProvenListener, at: SocketAddr) -> (TcpStream, Vec<u8>, usize) {
    let (mut handshake, mut sent) = Handshake::connect(identity(1), 0, [5; 32]);
    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(&sent).unwrap();
    stream.set_nonblocking(true).unwrap();
    let (begun, mut received) = (Instant::now(), 0);
    loop {
        assert!(begun.elapsed() < Duration::from_secs(20), "no challenge has arrived");
        assert!(listener.arrivals(|_| false).is_empty());
        let Ok(count) = stream.read(handshake.room()) else { continue };
        received += count;
        if let Ok(HandshakeAction::Send(proof)) = handshake.received(count) {
            stream.write_all(&proof).unwrap();
            sent.extend(proof);
            return (stream, sent, received);
        }
    }
}

/// Each challenge is new, so a proof is valid for one connection only.
#[test]
fn replayed_handshake_is_refused() {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let at = socket.local_addr().unwrap();
    let mut listener = ProvenListener::new(vec![socket.into()], identity(0), 3);
    let (first, sent, challenge_len) = connect_and_record(&mut listener, at);
    let begun = Instant::now();
    let mut accepted = Vec::new();
    while accepted.is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(20), "the proof was not accepted");
        accepted = listener.arrivals(|_| false);
    }
    assert_eq!(accepted[0].0, 1);
    drop((first, accepted));

    // Peer 1 has no connection any more, so the listener can refuse the replay only because of its proof.
    let mut replay = TcpStream::connect(at).unwrap();
    replay.write_all(&sent).unwrap();
    replay.set_nonblocking(true).unwrap();
    let mut got = Vec::new();
    let begun = Instant::now();
    // Until the listener closes the connection.
    while replay.read_to_end(&mut got).is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock) {
        assert!(begun.elapsed() < Duration::from_secs(10), "the connection was not closed");
        assert!(listener.arrivals(|_| false).is_empty());
    }
    assert!(listener.unproven().contains(&1));
    assert_eq!(got.len(), challenge_len, "a verdict follows the challenge");
}
