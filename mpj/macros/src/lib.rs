//! The attribute `#[mpj::test]`. Use it through the crate `mpj`.

use proc_macro::TokenStream;
use quote::{quote, quote_spanned};
use syn::{ItemFn, LitInt, LitStr, Path, parse_macro_input, parse_quote};

/// The attribute that `mpj` re-exports and documents as `mpj::test`.
#[proc_macro_attribute]
pub fn test(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let mut ranks: Option<LitInt> = None;
    let mut timeout: Option<LitStr> = None;
    let mut krate: Path = parse_quote!(::mpj);
    let parser = syn::meta::parser(|meta| {
        if meta.path.is_ident("ranks") {
            ranks = Some(meta.value()?.parse()?);
        } else if meta.path.is_ident("timeout") {
            timeout = Some(meta.value()?.parse()?);
        } else if meta.path.is_ident("crate") {
            krate = meta.value()?.call(Path::parse_mod_style)?;
        } else {
            return Err(meta.error("expected `ranks = N`, `timeout = \"10s\"` or `crate = path::to::mpj`"));
        }
        Ok(())
    });
    parse_macro_input!(arguments with parser);
    let function = parse_macro_input!(item as ItemFn);
    let Some(ranks) = ranks else {
        let why = "expected the number of ranks: #[mpj::test(ranks = 4)]";
        return syn::Error::new_spanned(&function.sig.ident, why).to_compile_error().into();
    };
    if let Some(keyword) = function.sig.asyncness {
        let why = "a rank test cannot be an `async fn`: ranks are threads, and calls block";
        return syn::Error::new_spanned(keyword, why).to_compile_error().into();
    }
    if matches!(ranks.base10_parse::<u32>(), Ok(0)) {
        return syn::Error::new_spanned(ranks, "`ranks` must be at least 1").to_compile_error().into();
    }
    if function.sig.inputs.len() != 1 {
        let why = "a rank test takes one argument, an `mpj::World`";
        return syn::Error::new_spanned(&function.sig.ident, why).to_compile_error().into();
    }
    let (attributes, name, inputs, output, body) =
        (&function.attrs, &function.sig.ident, &function.sig.inputs, &function.sig.output, &function.block);
    let limit = match timeout {
        None => quote!(#krate::testing::DEFAULT_TIMEOUT),
        Some(text) => quote_spanned!(text.span()=> #krate::testing::parse_timeout(#text)),
    };
    quote! {
        #[::core::prelude::v1::test]
        #(#attributes)*
        fn #name() {
            fn body(#inputs) #output #body
            const LIMIT: ::core::time::Duration = #limit;
            #krate::testing::run(#ranks, LIMIT, body);
        }
    }
    .into()
}
