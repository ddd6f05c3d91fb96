//! Settings of the HTTP listener.

use super::{Effective, SettingsError};
use crate::runtime::doors::HttpSettings;
use norn_doors::{Access, Bounds};
use std::net::IpAddr;

/// Most proxies and origins.
const LISTED_MAX: usize = 256;

impl Effective {
    /// The HTTP listener; `None` without an address.
    pub(super) fn http(&self) -> Result<Option<HttpSettings>, SettingsError> {
        let always_tls = match self.text("http_tls") {
            "auto" => false,
            "always" => true,
            other => return Err(self.refused("http_tls", other, "`auto` or `always`")),
        };
        let access = Access { proxies: self.proxies()?, origins: self.origins()? };
        let bounds = Bounds {
            connections_max: self.count("http_connections_max"),
            requests_max: self.count("http_requests_max"),
            body_bytes_max: self.count("http_body_bytes_max"),
            bodies_bytes_max: self.count("http_memory_bytes"),
            head_timeout: self.milliseconds("http_head_timeout_ms"),
            body_timeout: self.milliseconds("http_body_timeout_ms"),
            idle_timeout: self.milliseconds("http_idle_timeout_ms"),
            metrics_queues: self.count("metrics_queues"),
            ..Bounds::default()
        };
        let least = self.bounds("http_memory_bytes").filter(|least| !least.allow(self.number("http_memory_bytes")));
        if let Some(least) = least {
            let wanted = format!("at least {}, which is `http_body_bytes_max`", least.low);
            return Err(self.refused("http_memory_bytes", self.text("http_memory_bytes"), &wanted));
        }
        if self.text("http_listen").is_empty() {
            return Ok(None);
        }
        let listen = self.address_to_bind("http_listen")?;
        Ok(Some(HttpSettings { listen, always_tls, access, bounds }))
    }

    fn listed(&self, name: &'static str) -> Result<Vec<&str>, SettingsError> {
        let listed: Vec<&str> = self.text(name).split(',').map(str::trim).filter(|piece| !piece.is_empty()).collect();
        match listed.len() {
            0..=LISTED_MAX => Ok(listed),
            _ => Err(self.refused(name, self.text(name), &format!("at most {LISTED_MAX} of them"))),
        }
    }

    fn proxies(&self) -> Result<Vec<IpAddr>, SettingsError> {
        let parse = |text: &&str| {
            let ip = text.parse::<IpAddr>().map(|ip| ip.to_canonical());
            ip.map_err(|_| self.refused("http_proxies", text, "the IP address of a proxy"))
        };
        self.listed("http_proxies")?.iter().map(parse).collect()
    }

    fn origins(&self) -> Result<Vec<String>, SettingsError> {
        let check = |text: &&str| {
            let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
            let is_origin = rest.is_some_and(|host| {
                !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && !b"/?#@".contains(&byte))
            });
            match is_origin {
                true => Ok((*text).to_owned()),
                false => Err(self.refused("http_origins", text, "an origin, as https://HOST or https://HOST:PORT")),
            }
        };
        self.listed("http_origins")?.iter().map(check).collect()
    }
}
