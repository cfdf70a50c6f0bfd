package client

import (
	"net"
	"net/http"
	"net/url"

	"github.com/brig-run/brig"
)

// checkAddress refuses what is no URL of a server, and plain HTTP to another
// machine unless that is admitted: whoever is on the way reads the key, and all
// that is sent with it.
func checkAddress(o Options) error {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return brig.InvalidField("url", "is not the URL of a server").WithHint("write it as http://127.0.0.1:2744")
	}
	if u.Scheme == "http" && !o.InsecureHTTP && !loopback(u.Hostname()) {
		return brig.InvalidField("url", "plain HTTP to %s shows the key to whoever is on the way", u.Hostname()).
			WithHint("use https, or admit it with --insecure-http or BRIG_INSECURE_HTTP=1, in Go with Options.InsecureHTTP")
	}
	return nil
}

// loopback reports whether a host is this machine. No other name is looked up,
// for the answer of a name server proves nothing. These are also what net/http
// asks without a proxy; in capitals it would take localhost to one.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// requester is what makes the requests. It follows no redirect, whoever has made
// it: net/http sends the key along to another port of the same host, and from
// https to http.
func requester(given *http.Client) *http.Client {
	h := http.Client{}
	if given != nil {
		h = *given // the caller's own is not changed
	}
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &h
}
