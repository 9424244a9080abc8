//! The macro behind `#[derive(Datatype)]`; see `mpj_datatypes`, which re-exports it.

mod checks;

use checks::{Layout, layout};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{DeriveInput, Fields, GenericParam, Generics, Member, Path, Type, WherePredicate, parse_quote};

/// Implements `Equivalent` and, if all fields are `Receivable`, `Receivable`.
///
/// Fields may have any type that is `Equivalent`. If `mpj_datatypes` has another name in your crate, give its path with
/// `#[datatype(crate = path::to::it)]`. A path to a module with other items of the same names cannot bypass the checks.
#[proc_macro_derive(Datatype, attributes(datatype))]
pub fn derive(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    run(input, &FacadeCrate { path: parse_quote!(::mpj_datatypes), buffers: false })
}

/// `#[derive(mpj::Datatype)]`: the same for programs that depend only on `mpj`. It also makes a single value a buffer.
#[proc_macro_derive(MpjDatatype, attributes(datatype))]
pub fn derive_for_mpj(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    run(input, &FacadeCrate { path: parse_quote!(::mpj), buffers: true })
}

/// The crate that re-exports the macro to the program.
struct FacadeCrate {
    /// Its path, unless the structure gives another.
    path: Path,
    /// Whether to implement `SendBuf` and `RecvBuf`.
    buffers: bool,
}

fn run(input: proc_macro::TokenStream, facade: &FacadeCrate) -> proc_macro::TokenStream {
    let input = syn::parse_macro_input!(input as DeriveInput);
    expand(&input, facade).unwrap_or_else(|why| rejected(&input, facade, &why)).into()
}

/// Returns the expansion for a rejected structure: the error and, for `mpj`, implementations of the buffer traits.
/// Without these the compiler would report a second error at each use of the structure as a buffer.
fn rejected(input: &DeriveInput, facade: &FacadeCrate, why: &syn::Error) -> TokenStream {
    let error = why.to_compile_error();
    let Ok(krate) = crate_path(input, facade) else { return error };
    let name = &input.ident;
    let (impl_generics, type_generics, clause) = input.generics.split_for_impl();
    let buffers = facade.buffers.then(|| {
        quote! {
            // SAFETY: the function never returns. A program can redirect `compile_error!`, and so be compiled.
            #[automatically_derived]
            unsafe impl #impl_generics #krate::SendBuf for #name #type_generics #clause {
                fn send_buf(&self) -> #krate::raw::Buf {
                    loop {}
                }
            }

            // SAFETY: the function never returns. A program can redirect `compile_error!`, and so be compiled.
            #[automatically_derived]
            unsafe impl #impl_generics #krate::RecvBuf for #name #type_generics #clause {
                fn recv_buf(&mut self) -> #krate::raw::Buf {
                    loop {}
                }
            }
        }
    });
    quote!(#error #buffers)
}

fn expand(input: &DeriveInput, facade: &FacadeCrate) -> syn::Result<TokenStream> {
    let layout = layout(input)?;
    let krate = crate_path(input, facade)?;
    let fields = checks::fields(input)?;
    let (members, types): (Vec<Member>, Vec<&Type>) = members(fields);

    let name = &input.ident;
    let mut generics = input.generics.clone();
    let parameters: Vec<_> = input.generics.type_params().map(|parameter| parameter.ident.clone()).collect();
    let clause = generics.make_where_clause();
    for parameter in &parameters {
        clause.predicates.push(parse_quote!(#parameter: #krate::Equivalent));
    }
    let sent = generics.clone();
    // The compiler checks a bound with a lifetime only where the implementation is used. So a structure with a field
    // that is not `Receivable` compiles, and is not `Receivable` either.
    let received = types.iter().map(|ty| -> WherePredicate {
        parse_quote!(for<'received> #ty: #krate::derive_support::Received<'received>)
    });
    generics.make_where_clause().predicates.extend(received);
    let (_, own_generics, _) = input.generics.split_for_impl();
    let itself = parse_quote!(for<'received> #name #own_generics: #krate::derive_support::Sent<'received>);
    generics.make_where_clause().predicates.push(itself);

    let (impl_generics, type_generics, sent_clause) = sent.split_for_impl();
    let received_clause = &generics.where_clause;
    let (primitive, datatype) = match (layout, &members[..], &types[..]) {
        (Layout::Transparent, [member], [only]) => transparent(&krate, member, only),
        _ => (TokenStream::new(), structure(input, &krate, &members, &types)),
    };
    let receivable = receivable_checks(&krate, &members, &types);
    let buffers = facade.buffers.then(|| buffer_impls(&krate, name, &sent, &generics));
    Ok(quote! {
        // SAFETY: the datatype contains only the fields, at their offsets, and its extent is the size of the structure.
        // The bytes of a field are initialised and immutable in the structure as they are in the field.
        #[automatically_derived]
        unsafe impl #impl_generics #krate::Equivalent for #name #type_generics #sent_clause {
            #primitive

            fn datatype() -> #krate::Datatype {
                #datatype
            }
        }

        // SAFETY: `derived` compiles only if every field is `Receivable`, and only if its return type is the datatype
        // of the trait, so that no other type checks the fields. The compiler infers their types.
        #[automatically_derived]
        unsafe impl #impl_generics #krate::Receivable for #name #type_generics #received_clause {
            fn derived() -> #krate::Datatype {
                #(#receivable)*
                <Self as #krate::Equivalent>::datatype()
            }
        }

        #buffers
    })
}

/// Returns statements that compile only if the fields can be received.
fn receivable_checks(krate: &Path, members: &[Member], types: &[&Type]) -> Vec<TokenStream> {
    let this = binding();
    each_field(members, types, |member, span| {
        let check = quote_spanned!(span=> <#krate::Datatype>::derived_received::<Self, _>);
        // SAFETY of the generated code: it only computes an address, and is never called.
        quote!(#check(|#this| unsafe { &raw const (*#this).#member });)
    })
}

/// Implements `SendBuf` with the bounds of `sent`, and `RecvBuf` with those of `received`.
fn buffer_impls(krate: &Path, name: &Ident, sent: &Generics, received: &Generics) -> TokenStream {
    let (impl_generics, type_generics, sent_clause) = sent.split_for_impl();
    let received_clause = &received.where_clause;
    quote! {
        // SAFETY: `item` describes one initialised item.
        #[automatically_derived]
        unsafe impl #impl_generics #krate::SendBuf for #name #type_generics #sent_clause {
            fn send_buf(&self) -> #krate::raw::Buf {
                <#krate::raw::Buf>::item(self)
            }
        }

        // SAFETY: `item_mut` describes one item of a `Receivable` type.
        #[automatically_derived]
        unsafe impl #impl_generics #krate::RecvBuf for #name #type_generics #received_clause {
            fn recv_buf(&mut self) -> #krate::raw::Buf {
                <#krate::raw::Buf>::item_mut(self)
            }
        }
    }
}

/// Returns `PRIMITIVE` and the body of `datatype` for a `#[repr(transparent)]` structure.
fn transparent(krate: &Path, member: &Member, ty: &Type) -> (TokenStream, TokenStream) {
    let this = binding();
    // The pattern lists all fields: if a later attribute macro adds one, this does not compile.
    let take = quote! {
        |#this: Self| {
            let Self { #member: #this } = #this;
            #this
        }
    };
    let primitive = quote_spanned!(ty.span()=> <#krate::Datatype>::derived_primitive::<Self, _>);
    let datatype = quote_spanned!(ty.span()=> <#krate::Datatype>::derived_transparent::<Self, _>);
    let primitive = quote! {
        const PRIMITIVE: ::core::option::Option<#krate::Primitive> = #primitive(#take);
    };
    (primitive, quote!(#datatype(#take)))
}

/// Returns the body of `datatype` for a structure.
///
/// It contains no type of a field: such a type may be a macro of the program, which can expand to other code, or to
/// another type, at each place. The compiler infers the type of a field from the pointer to it.
fn structure(input: &DeriveInput, krate: &Path, members: &[Member], types: &[&Type]) -> TokenStream {
    let (this, bound) = (binding(), Ident::new("__mpj_bound", Span::mixed_site()));
    let fields = each_field(members, types, |member, span| {
        let field = quote_spanned!(span=> <#krate::Datatype>::derived_field::<Self, _>);
        // SAFETY of the generated code: the address is that of memory for the structure.
        quote!(#field(#this, unsafe { &raw const (*#this).#member }))
    });
    // A later attribute macro may replace the structure. The patterns of the expansion compile only for a structure
    // with exactly these fields: for a union, binding a field would be unsafe.
    let is_generic = input.generics.params.iter().any(|p| !matches!(p, GenericParam::Lifetime(_)));
    // All instances of a generic function would share a static in it.
    let build = if is_generic {
        quote!(<#krate::Datatype>::derived_generic::<Self, _>(|#this| [#(#fields),*]))
    } else {
        quote! {
            static __MPJ_DATATYPE: ::std::sync::OnceLock<#krate::Datatype> = ::std::sync::OnceLock::new();
            <#krate::Datatype>::derived_structure::<Self, _, _>(&__MPJ_DATATYPE, |#this| [#(#fields),*])
        }
    };
    quote! {
        let _ = |#this: Self| {
            let Self { #(#members: _),* } = #this;
            #({
                let Self { #members: #bound, .. } = #this;
            })*
        };
        #build
    }
}

/// Returns the code of each field; an error in it points to the type of the field.
fn each_field(
    members: &[Member],
    types: &[&Type],
    code: impl Fn(&Member, Span) -> TokenStream,
) -> Vec<TokenStream> {
    members.iter().zip(types).map(|(member, ty)| code(member, ty.span())).collect()
}

/// Returns the name of a local variable. If the program has a constant of this name, the expansion does not compile.
fn binding() -> Ident {
    Ident::new("__mpj_this", Span::mixed_site())
}

fn members(fields: &Fields) -> (Vec<Member>, Vec<&Type>) {
    fields.members().zip(fields.iter().map(|field| &field.ty)).unzip()
}

fn crate_path(input: &DeriveInput, facade: &FacadeCrate) -> syn::Result<Path> {
    let mut path = facade.path.clone();
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("datatype")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("crate") {
                path = meta.value()?.call(Path::parse_mod_style)?;
                return Ok(());
            }
            let name =
                facade.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
            Err(meta.error(format!("the only argument is `crate = path::to::{name}`")))
        })?;
    }
    Ok(path)
}
