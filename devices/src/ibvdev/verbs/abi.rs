//! The part of the binary interface of libibverbs (`IBVERBS_1.1`) that this crate uses, as `infiniband/verbs.h`
//! declares it.
//!
//! The library exports no symbols for posting and polling: inline functions in the header jump through a table in the
//! context. So the first fields of some of the library's own objects are declared, too.

use core::ffi::{c_char, c_int, c_uint, c_void};

// Only the library accesses the fields of devices, protection domains and address handles.
#[repr(C)]
pub(super) struct RawDevice {
    _opaque: [u8; 0],
}

#[repr(C)]
pub(super) struct Pd {
    _opaque: [u8; 0],
}

#[repr(C)]
pub(super) struct Ah {
    _opaque: [u8; 0],
}

#[repr(C)]
pub(super) struct RawContext {
    pub(super) device: *mut RawDevice,
    pub(super) ops: ContextOps,
    pub(super) cmd_fd: c_int,
    pub(super) async_fd: c_int,
}

/// The table of the functions that post and poll. The functions that this crate does not call have no type here.
#[repr(C)]
pub(super) struct ContextOps {
    _to_poll: [*mut c_void; 11],
    pub(super) poll_cq: unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int,
    pub(super) req_notify_cq: unsafe extern "C" fn(*mut Cq, c_int) -> c_int,
    _to_srq: [*mut c_void; 7],
    pub(super) post_srq_recv: unsafe extern "C" fn(*mut Srq, *mut RecvWr, *mut *mut RecvWr) -> c_int,
    _to_send: [*mut c_void; 4],
    pub(super) post_send: unsafe extern "C" fn(*mut RawQp, *mut SendWr, *mut *mut SendWr) -> c_int,
    pub(super) post_recv: unsafe extern "C" fn(*mut RawQp, *mut RecvWr, *mut *mut RecvWr) -> c_int,
    _rest: [*mut c_void; 5],
}

#[repr(C)]
pub(super) struct Cq {
    pub(super) context: *mut RawContext,
}

#[repr(C)]
pub(super) struct Srq {
    pub(super) context: *mut RawContext,
}

#[repr(C)]
pub(super) struct RawQp {
    pub(super) context: *mut RawContext,
    _owner: *mut c_void,
    _pd: *mut Pd,
    _send_cq: *mut Cq,
    _recv_cq: *mut Cq,
    _srq: *mut Srq,
    _handle: u32,
    pub(super) number: u32,
}

#[repr(C)]
pub(super) struct RawMr {
    _context: *mut RawContext,
    _pd: *mut Pd,
    _addr: *mut c_void,
    _length: usize,
    _handle: u32,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

#[repr(C)]
pub(super) struct CompChannel {
    pub(super) context: *mut RawContext,
    pub(super) fd: c_int,
    _references: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct DeviceAttr {
    _firmware: [c_char; 64],
    _guids: [u64; 2],
    _max_mr_size: u64,
    _page_sizes: u64,
    _vendor: [u32; 3],
    _max_qp: c_int,
    pub(super) max_qp_wr: c_int,
    _flags: c_uint,
    _max_sge: [c_int; 2],
    _max_cq: c_int,
    pub(super) max_cqe: c_int,
    _max_mr: c_int,
    _max_pd: c_int,
    pub(super) max_qp_rd_atom: c_int,
    _max_ee_rd_atom: c_int,
    _max_res_rd_atom: c_int,
    pub(super) max_qp_init_rd_atom: c_int,
    _between: [c_int; 13],
    _max_srq: c_int,
    pub(super) max_srq_wr: c_int,
    _max_srq_sge: c_int,
    pub(super) max_pkeys: u16,
    _ack_delay: u8,
    pub(super) ports: u8,
}

/// The attributes of a port, with the fields of rdma-core 44.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct PortAttr {
    pub(super) state: c_uint,
    _max_mtu: c_uint,
    pub(super) active_mtu: c_uint,
    pub(super) gid_table: c_int,
    _flags: u32,
    pub(super) max_message: u32,
    _violations: [u32; 2],
    pub(super) pkey_table: u16,
    pub(super) lid: u16,
    _sm_lid: u16,
    _link: [u8; 8],
    pub(super) link_layer: u8,
    _flags_of_port: u8,
    _flags2: u16,
}

/// A GID, aligned for the library, which can read it as two 64-bit numbers.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub(super) struct Gid {
    pub(super) raw: [u8; 16],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct GlobalRoute {
    pub(super) dgid: Gid,
    pub(super) flow_label: u32,
    pub(super) sgid_index: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct AhAttr {
    pub(super) route: GlobalRoute,
    pub(super) dlid: u16,
    pub(super) service_level: u8,
    pub(super) path_bits: u8,
    pub(super) static_rate: u8,
    pub(super) is_global: u8,
    pub(super) port: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct QpCap {
    pub(super) max_send_wr: u32,
    pub(super) max_recv_wr: u32,
    pub(super) max_send_sge: u32,
    pub(super) max_recv_sge: u32,
    pub(super) max_inline: u32,
}

#[repr(C)]
pub(super) struct QpInitAttr {
    pub(super) owner: *mut c_void,
    pub(super) send_cq: *mut Cq,
    pub(super) recv_cq: *mut Cq,
    pub(super) srq: *mut Srq,
    pub(super) cap: QpCap,
    pub(super) kind: c_uint,
    pub(super) all_signalled: c_int,
}

/// The new attributes of a queue pair. A [mask] names the fields that are set; the others are zero.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct QpAttr {
    pub(super) state: c_uint,
    pub(super) current_state: c_uint,
    pub(super) path_mtu: c_uint,
    pub(super) migration: c_uint,
    pub(super) qkey: u32,
    pub(super) rq_psn: u32,
    pub(super) sq_psn: u32,
    pub(super) peer: u32,
    pub(super) access: c_uint,
    pub(super) cap: QpCap,
    pub(super) address: AhAttr,
    pub(super) other_address: AhAttr,
    pub(super) pkey_index: u16,
    pub(super) other_pkey_index: u16,
    pub(super) sqd_notify: u8,
    pub(super) sq_draining: u8,
    pub(super) max_reads: u8,
    pub(super) max_reads_of_peer: u8,
    pub(super) min_rnr_timer: u8,
    pub(super) port: u8,
    pub(super) timeout: u8,
    pub(super) retries: u8,
    pub(super) rnr_retries: u8,
    pub(super) other_port: u8,
    pub(super) other_timeout: u8,
    pub(super) rate_limit: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct SrqAttr {
    pub(super) max_wr: u32,
    pub(super) max_sge: u32,
    pub(super) limit: u32,
}

#[repr(C)]
pub(super) struct SrqInitAttr {
    pub(super) owner: *mut c_void,
    pub(super) attr: SrqAttr,
}

#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Sge {
    pub(super) addr: u64,
    pub(super) length: u32,
    pub(super) lkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Remote {
    pub(super) addr: u64,
    pub(super) rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Datagram {
    pub(super) ah: *mut Ah,
    pub(super) qpn: u32,
    pub(super) qkey: u32,
}

/// The arguments of a work request that depend on its kind. `none` is as long as the longest variant of the library.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) union Request {
    pub(super) remote: Remote,
    pub(super) datagram: Datagram,
    pub(super) none: [u64; 4],
}

#[repr(C)]
pub(super) struct SendWr {
    pub(super) id: u64,
    pub(super) next: *mut SendWr,
    pub(super) list: *mut Sge,
    pub(super) count: c_int,
    pub(super) opcode: c_uint,
    pub(super) flags: c_uint,
    pub(super) immediate: u32,
    pub(super) request: Request,
    pub(super) xrc: u32,
    pub(super) rest: [u64; 6],
}

#[repr(C)]
pub(super) struct RecvWr {
    pub(super) id: u64,
    pub(super) next: *mut RecvWr,
    pub(super) list: *mut Sge,
    pub(super) count: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Wc {
    pub(crate) id: u64,
    /// 0 on success; otherwise `len` is not valid.
    pub(crate) status: c_uint,
    _opcode: c_uint,
    _vendor: u32,
    /// For a receive, the number of bytes that arrived.
    pub(crate) len: u32,
    _immediate: u32,
    pub(crate) qpn: u32,
    _from: u32,
    _flags: c_uint,
    _pkey_index: u16,
    _slid: u16,
    _sl: u8,
    _path_bits: u8,
}

#[repr(C)]
pub(super) struct AsyncEvent {
    /// A pointer to the object that has failed, or the number of a port in the first four bytes.
    pub(super) element: u64,
    pub(super) kind: c_uint,
}

impl AsyncEvent {
    /// Returns the port of a port event.
    pub(super) fn port(&self) -> u8 {
        let [a, b, c, d, ..] = self.element.to_ne_bytes();
        c_int::from_ne_bytes([a, b, c, d]) as u8
    }
}

pub(super) const PORT_ACTIVE: c_uint = 4;
pub(super) const LINK_ETHERNET: u8 = 2;
pub(super) const QPT_RC: c_uint = 2;
pub(super) const QPT_UD: c_uint = 4;

pub(super) const STATE_INIT: c_uint = 1;
pub(super) const STATE_RTR: c_uint = 2;
pub(super) const STATE_RTS: c_uint = 3;
pub(super) const STATE_ERR: c_uint = 6;

/// The bits that name the fields of a [`QpAttr`].
pub(super) mod mask {
    use core::ffi::c_int;

    pub(crate) const STATE: c_int = 1;
    pub(crate) const ACCESS: c_int = 1 << 3;
    pub(crate) const PKEY_INDEX: c_int = 1 << 4;
    pub(crate) const PORT: c_int = 1 << 5;
    pub(crate) const QKEY: c_int = 1 << 6;
    pub(crate) const ADDRESS: c_int = 1 << 7;
    pub(crate) const PATH_MTU: c_int = 1 << 8;
    pub(crate) const TIMEOUT: c_int = 1 << 9;
    pub(crate) const RETRIES: c_int = 1 << 10;
    pub(crate) const RNR_RETRIES: c_int = 1 << 11;
    pub(crate) const RQ_PSN: c_int = 1 << 12;
    pub(crate) const MAX_READS: c_int = 1 << 13;
    pub(crate) const MIN_RNR_TIMER: c_int = 1 << 15;
    pub(crate) const SQ_PSN: c_int = 1 << 16;
    pub(crate) const MAX_READS_OF_PEER: c_int = 1 << 17;
    pub(crate) const PEER: c_int = 1 << 20;
}

pub(super) const WR_SEND: c_uint = 2;
pub(super) const WR_RDMA_READ: c_uint = 4;

pub(super) const SEND_SIGNALLED: c_uint = 2;
pub(super) const SEND_INLINE: c_uint = 8;

pub(super) const ACCESS_LOCAL_WRITE: c_int = 1;
pub(super) const ACCESS_REMOTE_READ: c_int = 4;

pub(super) const WC_FLUSHED: c_uint = 5;

pub(super) const EVENT_CQ_ERROR: c_uint = 0;
pub(super) const EVENT_DEVICE_FATAL: c_uint = 8;
pub(super) const EVENT_PORT_ACTIVE: c_uint = 9;
pub(super) const EVENT_PORT_ERROR: c_uint = 10;
pub(super) const EVENT_SRQ_ERROR: c_uint = 14;

// These are the sizes and offsets that a C compiler reports for the header of rdma-core 44 on 64-bit machines.
// `devices/check/bindings` compares all declarations of this file with those of crate `ibverbs-sys`.
#[cfg(target_pointer_width = "64")]
const _: () = {
    use core::mem::offset_of;

    assert!(offset_of!(RawContext, ops) == 8 && offset_of!(RawContext, async_fd) == 268);
    assert!(offset_of!(RawContext, ops.poll_cq) == 96 && offset_of!(RawContext, ops.req_notify_cq) == 104);
    assert!(offset_of!(RawContext, ops.post_srq_recv) == 168 && offset_of!(RawContext, ops.post_send) == 208);
    assert!(offset_of!(RawContext, ops.post_recv) == 216);
    assert!(offset_of!(RawQp, number) == 52 && offset_of!(CompChannel, fd) == 8);
    assert!(offset_of!(RawMr, lkey) == 36 && offset_of!(RawMr, rkey) == 40 && size_of::<RawMr>() == 48);
    assert!(offset_of!(DeviceAttr, max_qp_wr) == 112 && offset_of!(DeviceAttr, max_cqe) == 132);
    assert!(offset_of!(DeviceAttr, max_qp_rd_atom) == 144);
    assert!(offset_of!(DeviceAttr, max_qp_init_rd_atom) == 156);
    assert!(offset_of!(DeviceAttr, max_srq_wr) == 216 && offset_of!(DeviceAttr, max_pkeys) == 224);
    assert!(offset_of!(DeviceAttr, ports) == 227 && size_of::<DeviceAttr>() == 232);
    assert!(offset_of!(PortAttr, active_mtu) == 8 && offset_of!(PortAttr, gid_table) == 12);
    assert!(offset_of!(PortAttr, max_message) == 20 && offset_of!(PortAttr, pkey_table) == 32);
    assert!(offset_of!(PortAttr, lid) == 34 && offset_of!(PortAttr, link_layer) == 46);
    assert!(size_of::<PortAttr>() == 52);
    assert!(offset_of!(AhAttr, dlid) == 24 && offset_of!(AhAttr, is_global) == 29);
    assert!(offset_of!(AhAttr, port) == 30 && size_of::<AhAttr>() == 32);
    assert!(offset_of!(QpInitAttr, cap) == 32 && offset_of!(QpInitAttr, kind) == 52);
    assert!(size_of::<QpInitAttr>() == 64 && size_of::<SrqInitAttr>() == 24);
    assert!(offset_of!(QpAttr, rq_psn) == 20 && offset_of!(QpAttr, cap) == 36);
    assert!(offset_of!(QpAttr, address) == 56 && offset_of!(QpAttr, other_address) == 88);
    assert!(offset_of!(QpAttr, pkey_index) == 120 && offset_of!(QpAttr, max_reads) == 126);
    assert!(offset_of!(QpAttr, port) == 129 && offset_of!(QpAttr, timeout) == 130);
    assert!(offset_of!(QpAttr, rate_limit) == 136 && size_of::<QpAttr>() == 144);
    assert!(size_of::<Sge>() == 16 && size_of::<RecvWr>() == 32 && size_of::<SendWr>() == 128);
    assert!(offset_of!(SendWr, opcode) == 28 && offset_of!(SendWr, flags) == 32);
    assert!(offset_of!(SendWr, request) == 40 && offset_of!(Remote, rkey) == 8);
    assert!(offset_of!(Datagram, qpn) == 8 && offset_of!(Datagram, qkey) == 12);
    assert!(offset_of!(Wc, status) == 8 && offset_of!(Wc, len) == 20 && offset_of!(Wc, qpn) == 28);
    assert!(size_of::<Wc>() == 48);
    assert!(offset_of!(AsyncEvent, kind) == 8 && size_of::<AsyncEvent>() == 16);
};
