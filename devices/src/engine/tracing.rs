//! Records the engine's events in the trace of its rank.
//!
//! Each function, or its caller, first checks whether there is a trace; a rank that is not traced has no other cost.

use super::Engine;
use super::blocked::WaitReason;
use super::channel::Channel;
use super::delivery::Delivery;
use super::inbox::Binding;
use super::incoming_body::{BodyTraceInfo, IncomingBody};
use super::peer::Outbox;
use super::traffic::AtomicCount;
use crate::device::{PeerId, PostError};
use crate::header::{FrameKind, Head};
use crate::liveness::{Exit, ExitEvent};
use crate::message::Envelope;
use crate::trace::{ArgValue, Flow, Timestamp, Trace};

impl Engine {
    /// Returns the trace of this rank, if it is traced (`MPJ_TRACE`).
    #[inline]
    pub fn trace(&self) -> Option<&Trace> {
        self.trace.as_deref()
    }

    /// Closes the trace, if there is one; later events are not recorded.
    ///
    /// # Errors
    /// The reason why the trace is incomplete, as a sentence.
    pub fn close_trace(&self) -> Result<(), String> {
        let Some(trace) = &self.trace else { return Ok(()) };
        self.trace_counters(trace);
        trace.close()
    }

    /// Records the [waits](Self::waits) that are not over, as slices that end now, with the argument `open`, and writes
    /// the trace. Call it before the rank is terminated; a wait that ends later is recorded again.
    pub fn trace_open_waits(&self) {
        let Some(trace) = &self.trace else { return };
        for waiting in self.waits() {
            let (name, [a, b, c, d, e]) = waiting.wait.trace_args();
            let args = [a, b, c, d, e, ("open", ArgValue::Number(1))];
            trace.open_slice((waiting.number, &waiting.thread), waiting.elapsed(), name, "wait", &args);
        }
        trace.flush();
    }

    fn trace_counters(&self, trace: &Trace) {
        let stats = self.stats();
        for (device, traffic) in stats.devices.iter().filter(|(_, traffic)| *traffic != Default::default()) {
            trace.counters(device, traffic);
        }
        trace.copies(stats.copies().bytes);
    }

    #[cold]
    pub(super) fn trace_wait(&self, trace: &Trace, begun: Timestamp, wait: &WaitReason) {
        if trace.wants_counters() {
            self.trace_counters(trace);
        }
        let (name, args) = wait.trace_args();
        trace.slice(begun, name, "wait", &args);
    }

    /// Posts a frame by calling `post`, and records it if it is the first frame of a message.
    #[inline]
    pub(super) fn post_traced(
        &self,
        out: &mut Outbox,
        head: &Head,
        bytes: usize,
        post: impl FnOnce(&mut Outbox) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        let Some(trace) = &self.trace else { return post(out) };
        let begun = trace.now();
        post(out)?;
        self.trace_posted(trace, begun, out, head, bytes);
        Ok(())
    }

    #[cold]
    fn trace_posted(&self, trace: &Trace, begun: Timestamp, out: &Outbox, head: &Head, bytes: usize) {
        let (name, bytes) = match FrameKind::from_code(head.short.kind()) {
            Some(FrameKind::Eager) => ("eager sent", bytes as u64),
            Some(FrameKind::EagerSync) => ("synchronous eager sent", bytes as u64),
            Some(FrameKind::Rts) => ("RTS sent", head.extra.get()),
            _ => return,
        };
        let flow = trace.count_sent(out.id.0);
        let context = out.bound.get(head.channel()).copied().unwrap_or_default();
        let args = [
            ("to", ArgValue::Number(out.id.0.into())),
            ("tag", ArgValue::Signed(head.tag())),
            ("bytes", ArgValue::Number(bytes)),
            ("context", ArgValue::Number(context)),
            ("device", self.device_to(out.id)),
        ];
        trace.slice_with_flow(begun, name, flow, &args);
    }

    #[cold]
    pub(super) fn trace_piece(
        &self,
        begun: Timestamp,
        name: &'static str,
        preposition: &'static str,
        peer: PeerId,
        bytes: usize,
    ) {
        let Some(trace) = &self.trace else { return };
        let args = [
            (preposition, ArgValue::Number(peer.0.into())),
            ("bytes", ArgValue::Number(bytes as u64)),
            ("device", self.device_to(peer)),
        ];
        trace.slice(begun, ["", name], "piece", &args);
    }

    pub(super) fn note_registered(&self, out: &mut Outbox, bytes: usize) {
        if bytes == 0 {
            return;
        }
        out.sent.registered.add(bytes);
        if let Some(trace) = &self.trace {
            let args = [("bytes", ArgValue::Number(bytes as u64)), ("device", self.device_to(out.id))];
            trace.instant("registered", "memory", &args, None);
        }
    }

    /// Ends the flow of a rendezvous message whose body has landed or is viewed, if its RTS was recorded.
    pub(super) fn trace_received(
        &self,
        channel: &Channel,
        from: PeerId,
        sender_op: u64,
        message: &Envelope,
        name: &'static str,
    ) {
        let Some(trace) = &self.trace else { return };
        let begun = trace.now();
        if let Some(flow) = trace.take_expected_body(from.0, channel.context(), sender_op) {
            let args = event_args(from, message.tag, message.bytes, channel.context(), self.device_to(from));
            trace.slice_with_flow(begun, name, flow, &args);
        }
    }

    /// Ends the flow of a rendezvous message that is refused, if its RTS was recorded.
    pub(super) fn trace_refused(&self, from: PeerId, context: u64, sender_op: u64) {
        let Some(trace) = &self.trace else { return };
        let begun = trace.now();
        if let Some(flow) = trace.take_expected_body(from.0, context, sender_op) {
            let args = [("from", ArgValue::Number(from.0.into())), ("context", ArgValue::Number(context))];
            trace.slice_with_flow(begun, "rendezvous refused", flow, &args);
        }
    }

    #[cold]
    pub(super) fn trace_unexpected(
        &self,
        trace: &Trace,
        begun: Timestamp,
        channel: &Channel,
        from: PeerId,
        message: &Envelope,
    ) {
        let args = event_args(from, message.tag, message.bytes, channel.context(), self.device_to(from));
        trace.slice(begun, ["", "unexpected message received"], "message", &args);
    }

    pub(super) fn trace_exit(&self, event: &ExitEvent) {
        let Some(trace) = &self.trace else { return };
        let (name, why) = match &event.exit {
            Exit::ClosingExcept(_) => ("a rank is closing except for its tasks", None),
            Exit::Closing => ("a rank is closing", None),
            Exit::Left => ("a rank has left", None),
            Exit::Died(why) => ("a rank has died", Some(&**why)),
        };
        trace.instant(name, "end", &[("rank", ArgValue::Number(event.rank.into()))], why);
    }

    fn device_to(&self, peer: PeerId) -> ArgValue {
        let device = self.peers.get(peer).and_then(|peer| self.device_of(peer));
        ArgValue::Text(device.map_or("not connected", |device| device.name()))
    }
}

fn event_args(
    from: PeerId,
    tag: i32,
    bytes: usize,
    context: u64,
    device: ArgValue,
) -> [(&'static str, ArgValue); 5] {
    [
        ("from", ArgValue::Number(from.0.into())),
        ("tag", ArgValue::Signed(tag)),
        ("bytes", ArgValue::Number(bytes as u64)),
        ("context", ArgValue::Number(context)),
        ("device", device),
    ]
}

#[derive(Clone, Copy)]
struct Arrival {
    name: &'static str,
    /// The flow that ends with this frame or body.
    flow: Option<Flow>,
    tag: i32,
    bytes: usize,
    context: u64,
}

impl Delivery<'_> {
    #[cold]
    pub(super) fn frame_traced(&mut self, trace: &Trace, from: PeerId, head: &[u8], body: &[u8]) {
        let begun = trace.now();
        let parsed = Head::parse(head);
        let arrival = parsed.and_then(|(kind, head)| self.arrival(trace, from, kind, &head, body.len()));
        self.on_frame(from, head, body);
        self.trace_arrival(trace, begun, from, arrival);
    }

    #[cold]
    pub(super) fn landed_traced(&mut self, trace: &Trace, from: PeerId) {
        let begun = trace.now();
        let arriving =
            self.inbox(from).and_then(|inbox| inbox.incoming.as_ref()).map(IncomingBody::trace_info);
        let arrival = arriving.and_then(|what| match what {
            BodyTraceInfo::Message { context, tag, bytes } => {
                let flow = Some(trace.count_arrived(from.0));
                Some(Arrival { name: EAGER, flow, tag, bytes, context })
            }
            BodyTraceInfo::Frame { kind, head, bytes } => self.arrival(trace, from, kind, &head, bytes),
            BodyTraceInfo::Piece { context, bytes } => {
                Some(Arrival { name: PIECE, flow: None, tag: 0, bytes, context })
            }
            BodyTraceInfo::Nothing => None,
        });
        self.finish_body(from);
        self.trace_arrival(trace, begun, from, arrival);
    }

    /// Describes a frame for the trace, and counts it if it is the first frame of a message.
    fn arrival(
        &mut self,
        trace: &Trace,
        from: PeerId,
        kind: FrameKind,
        head: &Head,
        bytes: usize,
    ) -> Option<Arrival> {
        let context = match self.binding(from, head) {
            Some(Binding::Resolved { channel, .. }) => channel.context(),
            Some(Binding::Unresolved { context, .. }) => *context,
            None => 0,
        };
        let (tag, arrival) = (head.tag(), |name, flow, bytes| Arrival { name, flow, tag: 0, bytes, context });
        let arrival = match kind {
            FrameKind::Eager | FrameKind::EagerSync => {
                arrival(EAGER, Some(trace.count_arrived(from.0)), bytes)
            }
            FrameKind::Rts => {
                trace.expect_body(trace.count_arrived(from.0), context, head.op.get());
                arrival("RTS arrived", None, usize::try_from(head.extra.get()).unwrap_or(usize::MAX))
            }
            FrameKind::Data => arrival(PIECE, None, bytes),
            _ => return None,
        };
        Some(Arrival { tag, ..arrival })
    }

    fn device(&self) -> ArgValue {
        let is_here = |(_, copied): &(_, &AtomicCount)| std::ptr::eq(*copied, self.copied);
        let device = self.engine.devices.iter().zip(&self.engine.copied_by_device).find(is_here);
        ArgValue::Text(device.map_or("", |(device, _)| device.name()))
    }

    fn trace_arrival(&self, trace: &Trace, begun: Timestamp, from: PeerId, arrival: Option<Arrival>) {
        let Some(Arrival { name, flow, tag, bytes, context }) = arrival else { return };
        let args = event_args(from, tag, bytes, context, self.device());
        match flow {
            Some(flow) => trace.slice_with_flow(begun, name, flow, &args),
            None => trace.slice(begun, ["", name], "message", &args),
        }
    }
}

const EAGER: &str = "eager arrived";
const PIECE: &str = "piece arrived";
