//! Tests with two queue pairs in one process. Without a device, the tests print that and return.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;

/// Opens the first device, or prints why the test is skipped.
fn device() -> Option<Arc<Context>> {
    let opened = names().and_then(|names| Context::open(&names[0]));
    opened.inspect_err(|why| drop(writeln!(std::io::stderr(), "SKIPPED, no verbs: {why}"))).ok()
}

struct End {
    qp: Qp,
    completions: Arc<CompletionQueue>,
    receives: Arc<SharedReceiveQueue>,
    memory: Vec<u8>,
    mr: Mr,
}

const LEN: usize = 64 << 10;

impl End {
    fn new(context: &Arc<Context>, port: u8) -> Self {
        let domain = ProtectionDomain::new(Arc::clone(context)).unwrap();
        let completions = CompletionQueue::new(context, 64).unwrap();
        let receives = SharedReceiveQueue::new(&domain, 16).unwrap();
        let room = QpSizes { sends: 16, receives: 0, inline: 128 };
        let qp = Qp::reliable_connected(&domain, &completions, &receives, room).unwrap();
        qp.to_init(port, 0).unwrap();
        let mut memory = vec![0; LEN];
        // SAFETY: the memory is dropped after the registration and the queue pair.
        let mr = unsafe { Mr::new(&domain, memory.as_mut_ptr(), LEN, MrAccess::Write) }.unwrap();
        End { qp, completions, receives, memory, mr }
    }

    fn connect(&self, to: &End, route: &Route) {
        let attrs = QpAttrs { mtu: 3, reads: 1, timeout: 14, retries: 7 };
        self.qp.connect(route, (to.qp.number(), 7), 7, attrs).unwrap();
    }

    fn completion(&self) -> Wc {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let mut room = [Wc::default()];
            if self.completions.poll(&mut room) == 1 {
                return room[0];
            }
            assert!(Instant::now() < end, "no completion");
            std::thread::yield_now();
        }
    }
}

fn pair() -> Option<(End, End, Arc<Context>)> {
    let context = device()?;
    let port = context.port(1).unwrap();
    assert!(port.is_active && context.limits().unwrap().max_shared_receives > 16);
    let gid_index = (0..port.gids).rfind(|at| context.gid(1, *at).is_ok_and(|gid| gid != [0; 16])).unwrap();
    let gid = context.gid(1, gid_index).unwrap();
    let route =
        Route { port: 1, gid_index: Some(gid_index as u8), dgid: gid, lid: port.lid, service_level: 0 };
    let (a, b) = (End::new(&context, 1), End::new(&context, 1));
    a.connect(&b, &route);
    b.connect(&a, &route);
    Some((a, b, context))
}

#[test]
fn messages_go_from_one_queue_pair_to_another() {
    let Some((mut a, mut b, _)) = pair() else { return };
    b.completions.arm();
    let place = RecvSge {
        id: 5,
        addr: b.memory.as_mut_ptr().expose_provenance() as u64,
        len: LEN as u32,
        lkey: b.mr.lkey(),
    };
    // SAFETY: the test accesses the memory only after the completion.
    unsafe { b.receives.post(&[place, RecvSge { id: 6, ..place }]) }.unwrap();
    let hello = *b"hello";
    // SAFETY: the bytes are copied into the request.
    unsafe { a.qp.send(1, SendSge::Inline(hello.as_ptr(), 5), false) }.unwrap();
    let received = b.completion();
    assert_eq!((received.id, received.status, received.len, received.qpn), (5, 0, 5, b.qp.number()));
    assert_eq!(b.memory[..5], hello);
    a.memory.iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
    // SAFETY: the memory stays until the completion.
    unsafe { a.qp.send(2, SendSge::Registered(a.memory.as_ptr(), LEN as u32, a.mr.lkey()), true) }.unwrap();
    let sent = a.completion();
    assert_eq!((sent.id, sent.status), (2, 0), "only the second send was signalled");
    assert_eq!(b.completion().id, 6);
    assert!(b.memory == a.memory);
}

#[test]
fn fence_read_completes_after_a_read() {
    let Some((mut a, mut b, _)) = pair() else { return };
    b.memory.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at / 3) as u8);
    let to = (a.memory.as_mut_ptr(), LEN as u32, a.mr.lkey());
    let from = (b.memory.as_ptr().expose_provenance() as u64, b.mr.rkey());
    // SAFETY: the test accesses the memory only after the completion.
    unsafe { a.qp.read(9, to, from) }.unwrap();
    a.qp.post_fence_read(10).unwrap();
    for id in [9, 10] {
        let done = a.completion();
        assert_eq!((done.id, done.status), (id, 0));
    }
    assert!(a.memory == b.memory);
}

#[test]
fn wrong_key_breaks_the_queue_pair_and_flushes_later_requests() {
    let Some((mut a, b, context)) = pair() else { return };
    let to = (a.memory.as_mut_ptr(), 8, a.mr.lkey());
    let from = (b.memory.as_ptr().expose_provenance() as u64, b.mr.rkey() ^ 0xff);
    // SAFETY: the test accesses the memory only after the completion.
    unsafe { a.qp.read(1, to, from) }.unwrap();
    let read = a.completion();
    assert_eq!(read.id, 1);
    assert!(read.status != 0 && !is_flushed(read.status), "{}", context.explain(read.status));
    a.qp.post_fence_read(2).unwrap();
    assert!(is_flushed(a.completion().status));
    assert!(!std::iter::from_fn(|| context.next_event()).any(|event| event == DeviceEvent::Failed));
    assert!(a.mr.release().is_ok());
}

#[test]
fn completion_wakes_a_sleeping_thread() {
    let Some((a, b, _)) = pair() else { return };
    let bell = crate::Doorbell::new().unwrap();
    a.completions.arm();
    let slept = Instant::now();
    bell.sleep(&[a.completions.descriptor().unwrap()], Duration::from_secs(60), || {
        a.qp.post_fence_read(3).unwrap();
        false
    });
    assert!(slept.elapsed() < Duration::from_secs(30));
    assert_eq!(a.completion().id, 3);
    drop(b);
}
