package client

import (
	"net"
	"net/http"
	"net/url"

	"github.com/brig-run/brig"
)

// checkAddress rejects an invalid server URL. It also rejects plain HTTP to
// another machine unless the options allow it, because anyone on the network
// path could read the key and all data.
func checkAddress(o Options) error {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return brig.InvalidField("url", "the value is not a URL of a server").WithHint("write it as http://127.0.0.1:2744")
	}
	if u.Scheme == "http" && !o.InsecureHTTP && !isLoopback(u.Hostname()) {
		return brig.InvalidField("url", "plain HTTP to %s would expose the key on the network", u.Hostname()).
			WithHint("use https, or permit it with --insecure-http or BRIG_INSECURE_HTTP=1, in Go with Options.InsecureHTTP")
	}
	return nil
}

// isLoopback reports whether a host is this machine. It does not resolve names, because DNS responses
// are not trustworthy. The accepted hosts are those for which net/http bypasses the proxy, so
// "LOCALHOST" in capitals is not accepted.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// newHTTPClient returns the HTTP client for all requests. It never follows
// redirects, even if the caller provided the client, because net/http would
// send the key to other ports of the same host, and from https to http.
func newHTTPClient(base *http.Client) *http.Client {
	h := http.Client{}
	if base != nil {
		h = *base // a copy, so that the caller's client is not modified
	}
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &h
}
