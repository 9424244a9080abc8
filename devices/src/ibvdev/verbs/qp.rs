//! Queue pairs (connected, and for datagrams) and address handles.

use core::ffi::{c_int, c_uint};
use core::ptr::{self, NonNull};
use std::fmt;
use std::io;
use std::sync::Arc;

use super::abi::{self, mask};
use super::context::{check, non_null};
use super::mr::ProtectionDomain;
use super::queues::{CompletionQueue, RecvSge, SharedReceiveQueue, with_list};

/// The route from a local port to a peer's port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Route {
    /// The local port by which packets leave.
    pub(crate) port: u8,
    /// The index of the local GID, if packets carry a global address.
    pub(crate) gid_index: Option<u8>,
    pub(crate) dgid: [u8; 16],
    /// The peer's LID, its address in the subnet.
    pub(crate) lid: u16,
    pub(crate) service_level: u8,
}

const HOP_LIMIT: u8 = 64;

impl Route {
    fn attr(&self) -> abi::AhAttr {
        let route = abi::GlobalRoute {
            dgid: abi::Gid { raw: self.dgid },
            sgid_index: self.gid_index.unwrap_or(0),
            hop_limit: HOP_LIMIT,
            ..abi::GlobalRoute::default()
        };
        abi::AhAttr {
            route,
            dlid: self.lid,
            service_level: self.service_level,
            is_global: self.gid_index.is_some().into(),
            port: self.port,
            ..abi::AhAttr::default()
        }
    }
}

/// The capacities of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpSizes {
    /// The number of send work requests.
    pub(crate) sends: usize,
    /// The number of receive work requests; 0 with a shared receive queue.
    pub(crate) receives: usize,
    /// The requested number of bytes that can be copied into a work request; [`Qp::inline`] can be smaller.
    pub(crate) inline: usize,
}

/// The attributes of a connected queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpAttrs {
    /// The verbs code of the MTU; see [`Port::mtu`](super::Port::mtu).
    pub(crate) mtu: u8,
    /// The maximum number of reads in progress at once, in each direction.
    pub(crate) reads: u8,
    /// The acknowledgement timeout, as an exponent: 4.096 µs times two to the power of this.
    pub(crate) timeout: u8,
    /// The number of retransmissions of a packet before the connection fails.
    pub(crate) retries: u8,
}

/// The memory of a message to send.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SendSge {
    /// An address and a length. The bytes are copied into the work request.
    Inline(*const u8, u32),
    /// An address, a length and the local key of the registration that covers the bytes.
    Registered(*const u8, u32, u32),
}

pub(crate) struct Qp {
    raw: NonNull<abi::RawQp>,
    domain: Arc<ProtectionDomain>,
    _completions: Arc<CompletionQueue>,
    _receives: Option<Arc<SharedReceiveQueue>>,
    inline: usize,
}

// SAFETY: any thread may use the objects of the library, and several threads may do so at once.
unsafe impl Send for Qp {}
// SAFETY: as for `Send`.
unsafe impl Sync for Qp {}

impl fmt::Debug for Qp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Qp({})", self.number())
    }
}

impl Qp {
    /// Creates a queue pair for a connection, in the state RESET. Its receives come from the shared queue `receives`.
    pub(crate) fn reliable_connected(
        domain: &Arc<ProtectionDomain>,
        completions: &Arc<CompletionQueue>,
        receives: &Arc<SharedReceiveQueue>,
        sizes: QpSizes,
    ) -> io::Result<Self> {
        Self::new(domain, completions, Some(receives), sizes, abi::QPT_RC)
    }

    /// Creates a datagram queue pair, ready to send and receive. It accepts only datagrams with this `qkey`.
    pub(crate) fn unreliable_datagram(
        domain: &Arc<ProtectionDomain>,
        completions: &Arc<CompletionQueue>,
        sizes: QpSizes,
        (port, pkey_index, qkey): (u8, u16, u32),
    ) -> io::Result<Self> {
        let qp = Self::new(domain, completions, None, sizes, abi::QPT_UD)?;
        let attr = abi::QpAttr { state: abi::STATE_INIT, port, pkey_index, qkey, ..Default::default() };
        qp.modify(attr, mask::STATE | mask::PORT | mask::PKEY_INDEX | mask::QKEY)?;
        qp.modify(abi::QpAttr { state: abi::STATE_RTR, ..Default::default() }, mask::STATE)?;
        qp.modify(abi::QpAttr { state: abi::STATE_RTS, ..Default::default() }, mask::STATE | mask::SQ_PSN)?;
        Ok(qp)
    }

    fn new(
        domain: &Arc<ProtectionDomain>,
        completions: &Arc<CompletionQueue>,
        receives: Option<&Arc<SharedReceiveQueue>>,
        sizes: QpSizes,
        kind: c_uint,
    ) -> io::Result<Self> {
        let size = |size: usize| u32::try_from(size).map_err(io::Error::other);
        let mut inline = sizes.inline;
        let raw = loop {
            let mut init = abi::QpInitAttr {
                owner: ptr::null_mut(),
                send_cq: completions.raw(),
                recv_cq: completions.raw(),
                srq: receives.map_or(ptr::null_mut(), |queue| queue.raw()),
                cap: abi::QpCap {
                    max_send_wr: size(sizes.sends)?,
                    max_recv_wr: size(sizes.receives)?,
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline: size(inline)?,
                },
                kind,
                all_signalled: 0,
            };
            let functions = domain.context().functions;
            // SAFETY: domain and queues belong to one open context, and the new `Qp` holds them.
            match non_null(unsafe { (functions.create_qp)(domain.raw.as_ptr(), &mut init) }) {
                Ok(raw) => break raw,
                // A device might support only shorter inline messages, and does not report the limit in advance.
                Err(_) if inline > 0 => inline /= 2,
                Err(error) => return Err(error),
            }
        };
        Ok(Qp {
            raw,
            domain: Arc::clone(domain),
            _completions: Arc::clone(completions),
            _receives: receives.cloned(),
            inline,
        })
    }

    fn modify(&self, mut attr: abi::QpAttr, which: c_int) -> io::Result<()> {
        // SAFETY: the queue pair exists, and the attributes that the mask names are set.
        check(unsafe { (self.domain.context().functions.modify_qp)(self.raw.as_ptr(), &mut attr, which) })
    }

    /// Prepares the queue pair for [`connect`](Self::connect), and allows the peer to read memory by its keys.
    pub(crate) fn to_init(&self, port: u8, pkey_index: u16) -> io::Result<()> {
        let access = abi::ACCESS_REMOTE_READ as c_uint;
        let attr = abi::QpAttr { state: abi::STATE_INIT, port, pkey_index, access, ..Default::default() };
        self.modify(attr, mask::STATE | mask::PORT | mask::PKEY_INDEX | mask::ACCESS)
    }

    /// Connects the queue pair, which can then receive and send. The packets that it sends are numbered from `psn`.
    pub(crate) fn connect(
        &self,
        route: &Route,
        (peer, peers_psn): (u32, u32),
        psn: u32,
        attrs: QpAttrs,
    ) -> io::Result<()> {
        /// The verbs code of the pause after "receiver not ready": 0.64 ms. Neither the pause nor a retry should be
        /// needed: the sender counts the peer's receives.
        const MIN_RNR_TIMER: u8 = 12;
        /// The verbs code of an infinite number of retries.
        const INFINITE_RNR_RETRIES: u8 = 7;
        let to_receive = abi::QpAttr {
            state: abi::STATE_RTR,
            path_mtu: attrs.mtu.into(),
            rq_psn: peers_psn,
            peer,
            address: route.attr(),
            max_reads_of_peer: attrs.reads,
            min_rnr_timer: MIN_RNR_TIMER,
            ..Default::default()
        };
        let which = mask::STATE | mask::PATH_MTU | mask::RQ_PSN | mask::PEER | mask::ADDRESS;
        self.modify(to_receive, which | mask::MAX_READS_OF_PEER | mask::MIN_RNR_TIMER)?;
        let to_send = abi::QpAttr {
            state: abi::STATE_RTS,
            sq_psn: psn,
            max_reads: attrs.reads,
            timeout: attrs.timeout,
            retries: attrs.retries,
            rnr_retries: INFINITE_RNR_RETRIES,
            ..Default::default()
        };
        let which = mask::STATE | mask::SQ_PSN | mask::MAX_READS | mask::TIMEOUT;
        self.modify(to_send, which | mask::RETRIES | mask::RNR_RETRIES)
    }

    /// Breaks the queue pair: posted work requests complete as flushed, and no more messages are sent to the peer or
    /// received from it.
    pub(crate) fn to_error(&self) {
        // Nothing can be done about a failure.
        let _ = self.modify(abi::QpAttr { state: abi::STATE_ERR, ..Default::default() }, mask::STATE);
    }

    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the queue pair exists as long as this value.
        unsafe { self.raw.as_ref() }.number
    }

    pub(crate) fn inline(&self) -> usize {
        self.inline
    }

    /// Posts one work request.
    ///
    /// # Safety
    /// * `list` of the request points to `count` pieces, and an address handle in it exists, until the call returns.
    /// * The memory that the pieces name fulfils the contract of [`send`](Self::send), and for a read that of
    ///   [`read`](Self::read).
    unsafe fn post(&self, mut request: abi::SendWr) -> io::Result<()> {
        // SAFETY: the queue pair exists as long as this value.
        let qp = unsafe { self.raw.as_ref() };
        // SAFETY: its context is open.
        let post = unsafe { &*qp.context }.ops.post_send;
        // SAFETY: the request is a local variable and the last one of its list; the caller's promise for the memory
        // that it points to.
        check(unsafe { post(self.raw.as_ptr(), &mut request, &mut ptr::null_mut()) })
    }

    /// Posts a message.
    ///
    /// # Safety
    /// The bytes stay valid and unchanged until the work request has completed, or the queue pair is destroyed. If
    /// they are copied into the request, they stay so until the call returns.
    #[inline]
    pub(crate) unsafe fn send(&self, id: u64, piece: SendSge, signalled: bool) -> io::Result<()> {
        let (mut sge, flags) = piece.to_sge();
        // SAFETY: `sge` is one piece; the caller's promise for its bytes.
        unsafe { self.post(request(id, &mut sge, 1, abi::WR_SEND, flags | signalled_flag(signalled))) }
    }

    /// Posts a datagram, and requests its completion.
    ///
    /// # Safety
    /// As [`send`](Self::send). `to` is dropped after this queue pair, because the request can use it until then.
    pub(crate) unsafe fn send_to(
        &self,
        id: u64,
        piece: SendSge,
        to: &AddressHandle,
        qpn: u32,
        qkey: u32,
    ) -> io::Result<()> {
        let (mut sge, flags) = piece.to_sge();
        let mut request = request(id, &mut sge, 1, abi::WR_SEND, flags | abi::SEND_SIGNALLED);
        request.request = abi::Request { datagram: abi::Datagram { ah: to.raw.as_ptr(), qpn, qkey } };
        // SAFETY: `sge` is one piece, and `to` is borrowed; the caller's promise for the bytes.
        unsafe { self.post(request) }
    }

    /// Posts a read of the peer's memory, and requests its completion.
    ///
    /// # Safety
    /// The memory at `to` stays valid, and nothing else accesses it, until the read has completed, or the queue pair
    /// is destroyed.
    pub(crate) unsafe fn read(
        &self,
        id: u64,
        to: (*mut u8, u32, u32),
        (addr, rkey): (u64, u32),
    ) -> io::Result<()> {
        let (base, length, lkey) = to;
        let mut sge = abi::Sge { addr: base.expose_provenance() as u64, length, lkey };
        let mut request = request(id, &mut sge, 1, abi::WR_RDMA_READ, abi::SEND_SIGNALLED);
        request.request = abi::Request { remote: abi::Remote { addr, rkey } };
        // SAFETY: `sge` is one piece; the caller's promise for the memory.
        unsafe { self.post(request) }
    }

    /// Posts a read of no bytes, which needs no key. Its completion means that all work requests before it have
    /// completed.
    pub(crate) fn post_fence_read(&self, id: u64) -> io::Result<()> {
        let mut request = request(id, ptr::null_mut(), 0, abi::WR_RDMA_READ, abi::SEND_SIGNALLED);
        request.request = abi::Request { remote: abi::Remote { addr: 0, rkey: 0 } };
        // SAFETY: the request names no memory and no address handle.
        unsafe { self.post(request) }
    }

    /// Posts receives of datagrams.
    ///
    /// # Safety
    /// As [`SharedReceiveQueue::post`].
    pub(crate) unsafe fn receive(&self, places: &[RecvSge]) -> io::Result<()> {
        // SAFETY: the queue pair exists as long as this value.
        let qp = unsafe { self.raw.as_ref() };
        // SAFETY: its context is open.
        let post = unsafe { &*qp.context }.ops.post_recv;
        // SAFETY: the list is valid during the call; the caller's promise for the memory.
        with_list(places, |list| unsafe { post(self.raw.as_ptr(), list, &mut ptr::null_mut()) })
    }
}

impl SendSge {
    fn to_sge(self) -> (abi::Sge, c_uint) {
        match self {
            SendSge::Inline(base, length) => {
                (abi::Sge { addr: base.expose_provenance() as u64, length, lkey: 0 }, abi::SEND_INLINE)
            }
            SendSge::Registered(base, length, lkey) => {
                (abi::Sge { addr: base.expose_provenance() as u64, length, lkey }, 0)
            }
        }
    }
}

fn signalled_flag(signalled: bool) -> c_uint {
    if signalled { abi::SEND_SIGNALLED } else { 0 }
}

fn request(id: u64, list: *mut abi::Sge, count: c_int, opcode: c_uint, flags: c_uint) -> abi::SendWr {
    let request = abi::Request { none: [0; 4] };
    abi::SendWr {
        id,
        next: ptr::null_mut(),
        list,
        count,
        opcode,
        flags,
        immediate: 0,
        request,
        xrc: 0,
        rest: [0; 6],
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        // SAFETY: the library made it, and it is destroyed once. After this call the device accesses no memory of its
        // work requests.
        unsafe { (self.domain.context().functions.destroy_qp)(self.raw.as_ptr()) };
    }
}

/// An address handle: the destination of datagrams.
pub(crate) struct AddressHandle {
    raw: NonNull<abi::Ah>,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: any thread may use the objects of the library, and several threads may do so at once.
unsafe impl Send for AddressHandle {}
// SAFETY: as for `Send`.
unsafe impl Sync for AddressHandle {}

impl fmt::Debug for AddressHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AddressHandle")
    }
}

impl AddressHandle {
    /// # Errors
    /// The error of the system, for example if the address is not reachable.
    pub(crate) fn new(domain: &Arc<ProtectionDomain>, route: &Route) -> io::Result<Self> {
        let mut attr = route.attr();
        // SAFETY: the domain belongs to an open context.
        let raw =
            non_null(unsafe { (domain.context().functions.create_ah)(domain.raw.as_ptr(), &mut attr) })?;
        Ok(AddressHandle { raw, domain: Arc::clone(domain) })
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        // SAFETY: the library made it, and it is destroyed once, after the queue pair to which the work requests that
        // use it were posted.
        unsafe { (self.domain.context().functions.destroy_ah)(self.raw.as_ptr()) };
    }
}
