//! Compares each struct, field, function and constant with its generated one.

use core::mem::{align_of, offset_of, size_of};

use ibverbs_sys as sys;

use super::*;

/// A type of `ibvdev`, and the generated type that is passed in its place.
trait Generated {
    type Type;
}

macro_rules! themselves {
    ($($number:ty),*) => { $(impl Generated for $number { type Type = $number; })* };
}
themselves!(u8, u16, u32, u64, usize, c_int, c_char, c_void);

impl<T: Generated> Generated for *mut T {
    type Type = *mut T::Type;
}

impl<T: Generated> Generated for *const T {
    type Type = *const T::Type;
}

impl<T: Generated, const N: usize> Generated for [T; N] {
    type Type = [T::Type; N];
}

impl<R: Generated, A: Generated, B: Generated> Generated for unsafe extern "C" fn(A, B) -> R {
    type Type = Option<unsafe extern "C" fn(A::Type, B::Type) -> R::Type>;
}

impl<R: Generated, A: Generated, B: Generated, C: Generated> Generated
    for unsafe extern "C" fn(A, B, C) -> R
{
    type Type = Option<unsafe extern "C" fn(A::Type, B::Type, C::Type) -> R::Type>;
}

macro_rules! opaque {
    ($($ours:ident = $theirs:ident),*) => { $(impl Generated for $ours { type Type = sys::$theirs; })* };
}
// Types that `ibvdev` uses only through pointers, without reading them.
opaque!(RawDevice = ibv_device, Pd = ibv_pd, Ah = ibv_ah);

/// Compiles only if the type of a field corresponds to the generated type. The arguments are not called.
fn same_type<S, F: Generated, T>(_: fn(*const S) -> *const F, _: fn(*const T) -> *const F::Type) {}

fn size_of_field<S, F>(_: fn(*const S) -> *const F) -> usize {
    size_of::<F>()
}

macro_rules! field {
    ($type:ty, $field:ident) => {
        // SAFETY: the closure is not called.
        |whole: *const $type| unsafe { &raw const (*whole).$field }
    };
}

/// Each entry is `Ours is theirs { field: theirs, … }`. `begins` instead of `is` marks a struct of which `ibvdev`
/// declares only the first fields. `field: first ..= last` is a field that spans several generated fields, or has
/// another type of the same size. The name in parentheses is the type that functions take.
macro_rules! layouts {
    ($($ours:ident $how:ident $theirs:ident $(($passed:ident))? {
        $($field:ident: $first:ident $(..= $last:ident)?),* $(,)?
    })*) => {
        $(impl Generated for $ours { type Type = layouts!(@passed $theirs $($passed)?); }

        #[test]
        #[allow(non_snake_case)]
        fn $ours() {
            // Without `..`, a field that is not listed is an error.
            let _ = |whole: &$ours| { let $ours { $($field: _),* } = whole; };
            $(
                assert_eq!(
                    offset_of!($ours, $field), offset_of!(sys::$theirs, $first),
                    "the offset of {}.{}", stringify!($ours), stringify!($field)
                );
                layouts!(@field $ours $theirs $field $first $($last)?);
            )*
            assert_eq!(align_of::<$ours>(), align_of::<sys::$theirs>(), "the alignment of {}", stringify!($ours));
            layouts!(@size $how size_of::<$ours>(), size_of::<sys::$theirs>());
        })*
    };
    (@passed $theirs:ident) => { sys::$theirs };
    (@passed $theirs:ident $passed:ident) => { sys::$passed };
    (@field $ours:ident $theirs:ident $field:ident $first:ident) => {
        same_type(field!($ours, $field), field!(sys::$theirs, $first));
    };
    (@field $ours:ident $theirs:ident $field:ident $first:ident $last:ident) => {
        let end = offset_of!(sys::$theirs, $last) + size_of_field(field!(sys::$theirs, $last));
        assert_eq!(
            size_of_field(field!($ours, $field)), end - offset_of!(sys::$theirs, $first),
            "the size of {}.{}", stringify!($ours), stringify!($field)
        );
    };
    (@size is $ours:expr, $theirs:expr) => { assert_eq!($ours, $theirs, "the size") };
    (@size begins $ours:expr, $theirs:expr) => { assert!($ours <= $theirs, "{} bytes of {}", $ours, $theirs) };
}

layouts! {
    RawContext begins ibv_context { device: device, ops: ops, cmd_fd: cmd_fd, async_fd: async_fd }
    ContextOps is ibv_context_ops {
        _to_poll: _compat_query_device ..= _compat_create_cq,
        poll_cq: poll_cq,
        req_notify_cq: req_notify_cq,
        _to_srq: _compat_cq_event ..= _compat_destroy_srq,
        post_srq_recv: post_srq_recv,
        _to_send: _compat_create_qp ..= _compat_destroy_qp,
        post_send: post_send,
        post_recv: post_recv,
        _rest: _compat_create_ah ..= _compat_async_event,
    }
    Cq begins ibv_cq { context: context }
    Srq begins ibv_srq { context: context }
    RawQp begins ibv_qp {
        context: context, _owner: qp_context, _pd: pd, _send_cq: send_cq, _recv_cq: recv_cq, _srq: srq, _handle: handle,
        number: qp_num,
    }
    RawMr is ibv_mr {
        _context: context, _pd: pd, _addr: addr, _length: length, _handle: handle, lkey: lkey, rkey: rkey,
    }
    CompChannel is ibv_comp_channel { context: context, fd: fd, _references: refcnt }
    DeviceAttr is ibv_device_attr {
        _firmware: fw_ver,
        _guids: node_guid ..= sys_image_guid,
        _max_mr_size: max_mr_size,
        _page_sizes: page_size_cap,
        _vendor: vendor_id ..= hw_ver,
        _max_qp: max_qp,
        max_qp_wr: max_qp_wr,
        _flags: device_cap_flags,
        _max_sge: max_sge ..= max_sge_rd,
        _max_cq: max_cq,
        max_cqe: max_cqe,
        _max_mr: max_mr,
        _max_pd: max_pd,
        max_qp_rd_atom: max_qp_rd_atom,
        _max_ee_rd_atom: max_ee_rd_atom,
        _max_res_rd_atom: max_res_rd_atom,
        max_qp_init_rd_atom: max_qp_init_rd_atom,
        _between: max_ee_init_rd_atom ..= max_map_per_fmr,
        _max_srq: max_srq,
        max_srq_wr: max_srq_wr,
        _max_srq_sge: max_srq_sge,
        max_pkeys: max_pkeys,
        _ack_delay: local_ca_ack_delay,
        ports: phys_port_cnt,
    }
    PortAttr begins ibv_port_attr (_compat_ibv_port_attr) {
        state: state,
        _max_mtu: max_mtu,
        active_mtu: active_mtu,
        gid_table: gid_tbl_len,
        _flags: port_cap_flags,
        max_message: max_msg_sz,
        _violations: bad_pkey_cntr ..= qkey_viol_cntr,
        pkey_table: pkey_tbl_len,
        lid: lid,
        _sm_lid: sm_lid,
        _link: lmc ..= phys_state,
        link_layer: link_layer,
        _flags_of_port: flags,
        _flags2: port_cap_flags2,
    }
    Gid is ibv_gid { raw: raw }
    GlobalRoute is ibv_global_route {
        dgid: dgid, flow_label: flow_label, sgid_index: sgid_index, hop_limit: hop_limit, traffic_class: traffic_class,
    }
    AhAttr is ibv_ah_attr {
        route: grh, dlid: dlid, service_level: sl, path_bits: src_path_bits, static_rate: static_rate, is_global: is_global,
        port: port_num,
    }
    QpCap is ibv_qp_cap {
        max_send_wr: max_send_wr, max_recv_wr: max_recv_wr, max_send_sge: max_send_sge, max_recv_sge: max_recv_sge,
        max_inline: max_inline_data,
    }
    QpInitAttr is ibv_qp_init_attr {
        owner: qp_context, send_cq: send_cq, recv_cq: recv_cq, srq: srq, cap: cap, kind: qp_type, all_signalled: sq_sig_all,
    }
    QpAttr is ibv_qp_attr {
        state: qp_state,
        current_state: cur_qp_state,
        path_mtu: path_mtu,
        migration: path_mig_state,
        qkey: qkey,
        rq_psn: rq_psn,
        sq_psn: sq_psn,
        peer: dest_qp_num,
        access: qp_access_flags,
        cap: cap,
        address: ah_attr,
        other_address: alt_ah_attr,
        pkey_index: pkey_index,
        other_pkey_index: alt_pkey_index,
        sqd_notify: en_sqd_async_notify,
        sq_draining: sq_draining,
        max_reads: max_rd_atomic,
        max_reads_of_peer: max_dest_rd_atomic,
        min_rnr_timer: min_rnr_timer,
        port: port_num,
        timeout: timeout,
        retries: retry_cnt,
        rnr_retries: rnr_retry,
        other_port: alt_port_num,
        other_timeout: alt_timeout,
        rate_limit: rate_limit,
    }
    SrqAttr is ibv_srq_attr { max_wr: max_wr, max_sge: max_sge, limit: srq_limit }
    SrqInitAttr is ibv_srq_init_attr { owner: srq_context, attr: attr }
    Sge is ibv_sge { addr: addr, length: length, lkey: lkey }
    Remote is ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { addr: remote_addr, rkey: rkey }
    Datagram is ibv_send_wr__bindgen_ty_2__bindgen_ty_3 { ah: ah, qpn: remote_qpn, qkey: remote_qkey }
    SendWr is ibv_send_wr {
        id: wr_id,
        next: next,
        list: sg_list,
        count: num_sge,
        opcode: opcode,
        flags: send_flags,
        immediate: __bindgen_anon_1 ..= __bindgen_anon_1,
        request: wr,
        xrc: qp_type ..= qp_type,
        rest: __bindgen_anon_2 ..= __bindgen_anon_2,
    }
    RecvWr is ibv_recv_wr { id: wr_id, next: next, list: sg_list, count: num_sge }
    AsyncEvent is ibv_async_event { element: element ..= element, kind: event_type }
}

impl Generated for Request {
    type Type = sys::ibv_send_wr__bindgen_ty_2;
}

#[test]
fn request_is_the_union_of_the_same_structs() {
    same_type(field!(Request, remote), field!(sys::ibv_send_wr__bindgen_ty_2, rdma));
    same_type(field!(Request, datagram), field!(sys::ibv_send_wr__bindgen_ty_2, ud));
    assert_eq!(size_of_field(field!(Request, none)), size_of::<sys::ibv_send_wr__bindgen_ty_2>());
    assert_eq!(size_of::<Request>(), size_of::<sys::ibv_send_wr__bindgen_ty_2>());
    assert_eq!(align_of::<Request>(), align_of::<sys::ibv_send_wr__bindgen_ty_2>());
}

impl Generated for Wc {
    type Type = sys::ibv_wc;
}

/// The crate `ibverbs-sys` declares completions by hand, too. Five of their fields are private, so methods read them.
#[test]
fn completion_fields_are_at_the_same_offsets() {
    let Wc {
        id: _,
        status: _,
        _opcode,
        _vendor,
        len: _,
        _immediate,
        qpn: _,
        _from,
        _flags,
        _pkey_index,
        _slid,
        _sl,
        _path_bits,
    } = Wc::default();
    for (ours, theirs) in [
        (offset_of!(Wc, _immediate), offset_of!(sys::ibv_wc, imm_data)),
        (offset_of!(Wc, qpn), offset_of!(sys::ibv_wc, qp_num)),
        (offset_of!(Wc, _from), offset_of!(sys::ibv_wc, src_qp)),
        (offset_of!(Wc, _flags), offset_of!(sys::ibv_wc, wc_flags)),
        (offset_of!(Wc, _pkey_index), offset_of!(sys::ibv_wc, pkey_index)),
        (offset_of!(Wc, _slid), offset_of!(sys::ibv_wc, slid)),
        (offset_of!(Wc, _sl), offset_of!(sys::ibv_wc, sl)),
        (offset_of!(Wc, _path_bits), offset_of!(sys::ibv_wc, dlid_path_bits)),
    ] {
        assert_eq!(ours, theirs);
    }
    assert_eq!(size_of::<Wc>(), size_of::<sys::ibv_wc>());
    assert_eq!(align_of::<Wc>(), align_of::<sys::ibv_wc>());

    let ours = Wc { id: 1 << 40 | 2, status: WC_FLUSHED, _opcode: 4, _vendor: 5, len: 6, ..Wc::default() };
    // SAFETY: both are plain data of the same size, and 4 is a valid operation code of the crate.
    let theirs: sys::ibv_wc = unsafe { core::mem::transmute(ours) };
    assert_eq!((theirs.wr_id(), theirs.error(), theirs.opcode()), (1 << 40 | 2, Some((WC_FLUSHED, 5)), 4));
    assert_eq!(theirs.len(), 6);
}

#[test]
fn port_of_an_event_is_at_the_same_offset() {
    let mut event = sys::ibv_async_event { event_type: EVENT_PORT_ERROR, ..Default::default() };
    event.element.port_num = 7;
    // SAFETY: both are plain data of the same size.
    let ours: AsyncEvent = unsafe { core::mem::transmute(event) };
    assert_eq!((ours.port(), ours.kind), (7, EVENT_PORT_ERROR));
}

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        #[test]
        fn functions_have_the_generated_types() {
            $(
                type $name = unsafe extern "C" fn($(<$argument as Generated>::Type),*) $(-> <$result as Generated>::Type)?;
                let _: $name = sys::$name;
            )*
        }
    };
}
#[allow(non_camel_case_types)]
mod listed {
    use super::*;
    include!(concat!(env!("OUT_DIR"), "/functions.rs"));
}

macro_rules! constants {
    ($($ours:path = $theirs:expr,)*) => {
        #[test]
        fn constants_have_the_generated_values() {
            $(assert_eq!(u64::try_from($ours).unwrap(), u64::from($theirs), "{}", stringify!($ours));)*
        }
    };
}

constants! {
    PORT_ACTIVE = sys::ibv_port_state::IBV_PORT_ACTIVE,
    LINK_ETHERNET = sys::IBV_LINK_LAYER_ETHERNET,
    QPT_RC = sys::ibv_qp_type::IBV_QPT_RC,
    QPT_UD = sys::ibv_qp_type::IBV_QPT_UD,
    STATE_INIT = sys::ibv_qp_state::IBV_QPS_INIT,
    STATE_RTR = sys::ibv_qp_state::IBV_QPS_RTR,
    STATE_RTS = sys::ibv_qp_state::IBV_QPS_RTS,
    STATE_ERR = sys::ibv_qp_state::IBV_QPS_ERR,
    mask::STATE = sys::ibv_qp_attr_mask::IBV_QP_STATE.0,
    mask::ACCESS = sys::ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS.0,
    mask::PKEY_INDEX = sys::ibv_qp_attr_mask::IBV_QP_PKEY_INDEX.0,
    mask::PORT = sys::ibv_qp_attr_mask::IBV_QP_PORT.0,
    mask::QKEY = sys::ibv_qp_attr_mask::IBV_QP_QKEY.0,
    mask::ADDRESS = sys::ibv_qp_attr_mask::IBV_QP_AV.0,
    mask::PATH_MTU = sys::ibv_qp_attr_mask::IBV_QP_PATH_MTU.0,
    mask::TIMEOUT = sys::ibv_qp_attr_mask::IBV_QP_TIMEOUT.0,
    mask::RETRIES = sys::ibv_qp_attr_mask::IBV_QP_RETRY_CNT.0,
    mask::RNR_RETRIES = sys::ibv_qp_attr_mask::IBV_QP_RNR_RETRY.0,
    mask::RQ_PSN = sys::ibv_qp_attr_mask::IBV_QP_RQ_PSN.0,
    mask::MAX_READS = sys::ibv_qp_attr_mask::IBV_QP_MAX_QP_RD_ATOMIC.0,
    mask::MIN_RNR_TIMER = sys::ibv_qp_attr_mask::IBV_QP_MIN_RNR_TIMER.0,
    mask::SQ_PSN = sys::ibv_qp_attr_mask::IBV_QP_SQ_PSN.0,
    mask::MAX_READS_OF_PEER = sys::ibv_qp_attr_mask::IBV_QP_MAX_DEST_RD_ATOMIC.0,
    mask::PEER = sys::ibv_qp_attr_mask::IBV_QP_DEST_QPN.0,
    WR_SEND = sys::ibv_wr_opcode::IBV_WR_SEND,
    WR_RDMA_READ = sys::ibv_wr_opcode::IBV_WR_RDMA_READ,
    SEND_SIGNALLED = sys::ibv_send_flags::IBV_SEND_SIGNALED.0,
    SEND_INLINE = sys::ibv_send_flags::IBV_SEND_INLINE.0,
    ACCESS_LOCAL_WRITE = sys::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0,
    ACCESS_REMOTE_READ = sys::ibv_access_flags::IBV_ACCESS_REMOTE_READ.0,
    WC_FLUSHED = sys::ibv_wc_status::IBV_WC_WR_FLUSH_ERR,
    EVENT_CQ_ERROR = sys::IBV_EVENT_CQ_ERR,
    EVENT_DEVICE_FATAL = sys::IBV_EVENT_DEVICE_FATAL,
    EVENT_PORT_ACTIVE = sys::IBV_EVENT_PORT_ACTIVE,
    EVENT_PORT_ERROR = sys::IBV_EVENT_PORT_ERR,
    EVENT_SRQ_ERROR = sys::IBV_EVENT_SRQ_ERR,
}
