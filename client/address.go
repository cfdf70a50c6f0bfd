package client

import "net/http"

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
