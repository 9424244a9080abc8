//! Queue pairs: connected ones, and those of datagrams.

use core::ffi::{c_int, c_uint};
use core::ptr::{self, NonNull};
use std::fmt;
use std::io;
use std::sync::Arc;

use super::abi::{self, mask};
use super::context::{check, made};
use super::memory::Domain;
use super::queue::{Completions, Place, SharedReceives, with_list};

/// How a port of another host, or of this one, is addressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Route {
    /// The port here that packets leave by.
    pub(crate) port: u8,
    /// Its entry in the table of GIDs, where packets carry a global address.
    pub(crate) gid_index: Option<u8>,
    /// The peer's GID.
    pub(crate) gid: [u8; 16],
    /// The peer's address in the subnet.
    pub(crate) lid: u16,
    /// The service level.
    pub(crate) service_level: u8,
}

/// The most routers on the way.
const HOPS: u8 = 64;

impl Route {
    fn attr(&self) -> abi::AhAttr {
        let route = abi::GlobalRoute {
            dgid: abi::Gid { raw: self.gid },
            sgid_index: self.gid_index.unwrap_or(0),
            hop_limit: HOPS,
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

/// What a queue pair is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpSizes {
    /// Work requests to send, and of datagrams to receive.
    pub(crate) sends: usize,
    pub(crate) receives: usize,
    /// Bytes that a work request may carry itself.
    pub(crate) inline: usize,
}

/// How a connected queue pair is set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpAttrs {
    /// The code for the bytes of a packet; see [`Port::mtu`](super::Port::mtu).
    pub(crate) mtu: u8,
    /// Reads at once.
    pub(crate) reads: u8,
    /// The time for an acknowledgement, as the exponent of two of 4.096 µs.
    pub(crate) timeout: u8,
    /// How often a packet is sent again before the peer is given up.
    pub(crate) retries: u8,
}

/// The pieces of a message that is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Piece {
    /// So many bytes from here, copied into the work request.
    Inline(*const u8, u32),
    /// So many bytes from here, which lie in registered memory.
    Registered(*const u8, u32, u32),
}

/// A queue pair.
pub(crate) struct Qp {
    raw: NonNull<abi::Qp>,
    domain: Arc<Domain>,
    _completions: Arc<Completions>,
    _receives: Option<Arc<SharedReceives>>,
    inline: usize,
}

// SAFETY: the library's objects may be used by any thread, and by several at once.
unsafe impl Send for Qp {}
// SAFETY: as above.
unsafe impl Sync for Qp {}

impl fmt::Debug for Qp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Qp({})", self.number())
    }
}

impl Qp {
    /// Makes a queue pair that will be connected, and takes its receives from `receives`.
    ///
    /// # Errors
    /// What the system said.
    pub(crate) fn connected(
        domain: &Arc<Domain>,
        completions: &Arc<Completions>,
        receives: &Arc<SharedReceives>,
        room: QpSizes,
    ) -> io::Result<Self> {
        Self::new(domain, completions, Some(receives), room, abi::QPT_RC)
    }

    /// Makes a queue pair of datagrams that everybody may send to who knows `qkey`, ready to send and receive.
    ///
    /// # Errors
    /// What the system said.
    pub(crate) fn datagrams(
        domain: &Arc<Domain>,
        completions: &Arc<Completions>,
        room: QpSizes,
        (port, pkey_index, qkey): (u8, u16, u32),
    ) -> io::Result<Self> {
        let qp = Self::new(domain, completions, None, room, abi::QPT_UD)?;
        let attr = abi::QpAttr { state: abi::STATE_INIT, port, pkey_index, qkey, ..Default::default() };
        qp.modify(attr, mask::STATE | mask::PORT | mask::PKEY_INDEX | mask::QKEY)?;
        qp.modify(abi::QpAttr { state: abi::STATE_RTR, ..Default::default() }, mask::STATE)?;
        qp.modify(abi::QpAttr { state: abi::STATE_RTS, ..Default::default() }, mask::STATE | mask::SQ_PSN)?;
        Ok(qp)
    }

    fn new(
        domain: &Arc<Domain>,
        completions: &Arc<Completions>,
        receives: Option<&Arc<SharedReceives>>,
        room: QpSizes,
        kind: c_uint,
    ) -> io::Result<Self> {
        let size = |size: usize| u32::try_from(size).map_err(io::Error::other);
        let mut inline = room.inline;
        let raw = loop {
            let mut init = abi::QpInitAttr {
                owner: ptr::null_mut(),
                send_cq: completions.raw(),
                recv_cq: completions.raw(),
                srq: receives.map_or(ptr::null_mut(), |queue| queue.raw()),
                cap: abi::QpCap {
                    max_send_wr: size(room.sends)?,
                    max_recv_wr: size(room.receives)?,
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline: size(inline)?,
                },
                kind,
                all_signalled: 0,
            };
            let functions = domain.context().functions;
            // SAFETY: domain and queues are of one open context, and the queue pair holds them.
            match made(unsafe { (functions.create_qp)(domain.raw.as_ptr(), &mut init) }) {
                Ok(raw) => break raw,
                // A device may take less, and does not say how much before.
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
        // SAFETY: the queue pair is there, and the attributes that the mask names are set.
        check(unsafe { (self.domain.context().functions.modify_qp)(self.raw.as_ptr(), &mut attr, which) })
    }

    /// Makes it ready to be connected. The peer may read what it knows the key of.
    ///
    /// # Errors
    /// What the system said.
    pub(crate) fn prepare(&self, port: u8, pkey_index: u16) -> io::Result<()> {
        let access = abi::ACCESS_REMOTE_READ as c_uint;
        let attr = abi::QpAttr { state: abi::STATE_INIT, port, pkey_index, access, ..Default::default() };
        self.modify(attr, mask::STATE | mask::PORT | mask::PKEY_INDEX | mask::ACCESS)
    }

    /// Connects it: from now on it receives, and sends count from `psn` on.
    ///
    /// # Errors
    /// What the system said.
    pub(crate) fn connect(
        &self,
        route: &Route,
        (peer, peers_psn): (u32, u32),
        psn: u32,
        manner: QpAttrs,
    ) -> io::Result<()> {
        /// 0.64 ms, and for ever: the peer's receives are counted, so that one is always there.
        const RNR: (u8, u8) = (12, 7);
        let to_receive = abi::QpAttr {
            state: abi::STATE_RTR,
            path_mtu: manner.mtu.into(),
            rq_psn: peers_psn,
            peer,
            address: route.attr(),
            max_reads_of_peer: manner.reads,
            min_rnr_timer: RNR.0,
            ..Default::default()
        };
        let which = mask::STATE | mask::PATH_MTU | mask::RQ_PSN | mask::PEER | mask::ADDRESS;
        self.modify(to_receive, which | mask::MAX_READS_OF_PEER | mask::MIN_RNR_TIMER)?;
        let to_send = abi::QpAttr {
            state: abi::STATE_RTS,
            sq_psn: psn,
            max_reads: manner.reads,
            timeout: manner.timeout,
            retries: manner.retries,
            rnr_retries: RNR.1,
            ..Default::default()
        };
        let which = mask::STATE | mask::SQ_PSN | mask::MAX_READS | mask::TIMEOUT;
        self.modify(to_send, which | mask::RETRIES | mask::RNR_RETRIES)
    }

    /// Breaks it: what was posted ends as flushed, and nothing comes from the peer or goes to it any more.
    pub(crate) fn break_off(&self) {
        // One that cannot be broken was not connected, or is broken.
        let _ = self.modify(abi::QpAttr { state: abi::STATE_ERR, ..Default::default() }, mask::STATE);
    }

    /// Returns its number.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the queue pair is there.
        unsafe { self.raw.as_ref() }.number
    }

    /// Returns how many bytes a work request may carry itself.
    pub(crate) fn inline(&self) -> usize {
        self.inline
    }

    /// Posts one work request.
    ///
    /// # Errors
    /// What the library said: there is no room.
    ///
    /// # Safety
    /// * `list` of the request points to `count` pieces, and an address handle in it exists, until the call returns.
    /// * The memory that the pieces name is as [`send`](Self::send) says, and for a read as [`read`](Self::read) says.
    unsafe fn post(&self, mut request: abi::SendWr) -> io::Result<()> {
        // SAFETY: the queue pair is there.
        let qp = unsafe { self.raw.as_ref() };
        // SAFETY: its context is open.
        let post = unsafe { &*qp.context }.ops.post_send;
        // SAFETY: the request is ours, and ends its list; the caller's promise for what it points to.
        check(unsafe { post(self.raw.as_ptr(), &mut request, &mut ptr::null_mut()) })
    }

    /// Posts a message.
    ///
    /// # Errors
    /// What the library said: there is no room.
    ///
    /// # Safety
    /// The bytes stay as they are until the work request has completed, or the queue pair is gone; if they are copied into
    /// the request, until the call returns.
    #[inline]
    pub(crate) unsafe fn send(&self, id: u64, piece: Piece, signalled: bool) -> io::Result<()> {
        let (mut list, flags) = piece.list();
        // SAFETY: `list` is one piece; the caller's promise for its bytes.
        unsafe { self.post(request(id, &mut list, 1, abi::WR_SEND, flags | flag(signalled))) }
    }

    /// Posts a datagram, whose completion is told.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// # Safety
    /// As [`send`](Self::send).
    pub(crate) unsafe fn send_to(
        &self,
        id: u64,
        piece: Piece,
        to: &AddressHandle,
        qpn: u32,
        qkey: u32,
    ) -> io::Result<()> {
        let (mut list, flags) = piece.list();
        let mut request = request(id, &mut list, 1, abi::WR_SEND, flags | abi::SEND_SIGNALLED);
        request.request = abi::Request { datagram: abi::Datagram { ah: to.raw.as_ptr(), qpn, qkey } };
        // SAFETY: `list` is one piece, and `to` is borrowed; the caller's promise for the bytes.
        unsafe { self.post(request) }
    }

    /// Posts a read of `len` bytes of the peer's memory, whose completion is told.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// # Safety
    /// The memory at `to` stays, and nobody else uses it, until the read has completed, or the queue pair is gone.
    pub(crate) unsafe fn read(
        &self,
        id: u64,
        to: (*mut u8, u32, u32),
        (addr, rkey): (u64, u32),
    ) -> io::Result<()> {
        let (base, length, lkey) = to;
        let mut list = abi::Sge { addr: base.expose_provenance() as u64, length, lkey };
        let mut request = request(id, &mut list, 1, abi::WR_RDMA_READ, abi::SEND_SIGNALLED);
        request.request = abi::Request { remote: abi::Remote { addr, rkey } };
        // SAFETY: `list` is one piece; the caller's promise for the memory.
        unsafe { self.post(request) }
    }

    /// Posts a read of no bytes, which needs no key: its completion tells that all before it have completed.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub(crate) fn mark(&self, id: u64) -> io::Result<()> {
        let mut request = request(id, ptr::null_mut(), 0, abi::WR_RDMA_READ, abi::SEND_SIGNALLED);
        request.request = abi::Request { remote: abi::Remote { addr: 0, rkey: 0 } };
        // SAFETY: it has no pieces.
        unsafe { self.post(request) }
    }

    /// Posts receives of datagrams.
    ///
    /// # Errors
    /// What the library said: there is no room.
    ///
    /// # Safety
    /// As [`SharedReceives::post`].
    pub(crate) unsafe fn receive(&self, places: &[Place]) -> io::Result<()> {
        // SAFETY: the queue pair is there.
        let qp = unsafe { self.raw.as_ref() };
        // SAFETY: its context is open.
        let post = unsafe { &*qp.context }.ops.post_recv;
        // SAFETY: the list is good for the call.
        with_list(places, |list| unsafe { post(self.raw.as_ptr(), list, &mut ptr::null_mut()) })
    }
}

impl Piece {
    fn list(self) -> (abi::Sge, c_uint) {
        match self {
            Piece::Inline(base, length) => {
                (abi::Sge { addr: base.expose_provenance() as u64, length, lkey: 0 }, abi::SEND_INLINE)
            }
            Piece::Registered(base, length, lkey) => {
                (abi::Sge { addr: base.expose_provenance() as u64, length, lkey }, 0)
            }
        }
    }
}

fn flag(signalled: bool) -> c_uint {
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
        // SAFETY: it is the library's, and given back once. When this returns the device uses no memory in its name.
        unsafe { (self.domain.context().functions.destroy_qp)(self.raw.as_ptr()) };
    }
}

/// Where datagrams go.
pub(crate) struct AddressHandle {
    raw: NonNull<abi::Ah>,
    domain: Arc<Domain>,
}

// SAFETY: the library's objects may be used by any thread, and by several at once.
unsafe impl Send for AddressHandle {}
// SAFETY: as above.
unsafe impl Sync for AddressHandle {}

impl fmt::Debug for AddressHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AddressHandle")
    }
}

impl AddressHandle {
    /// Makes one.
    ///
    /// # Errors
    /// What the system said: nobody is reached this way.
    pub(crate) fn new(domain: &Arc<Domain>, route: &Route) -> io::Result<Self> {
        let mut attr = route.attr();
        // SAFETY: the domain is one of an open context.
        let raw = made(unsafe { (domain.context().functions.create_ah)(domain.raw.as_ptr(), &mut attr) })?;
        Ok(AddressHandle { raw, domain: Arc::clone(domain) })
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        // SAFETY: it is the library's, and given back once; it is dropped after what was posted with it.
        unsafe { (self.domain.context().functions.destroy_ah)(self.raw.as_ptr()) };
    }
}
