package rest

import (
	"net/http"
	"net/url"

	"github.com/brig-run/brig"
)

// route is one row of the route table, for the router and the document.
type route struct {
	id, method, pattern string
	tag, summary        string
	notes               string // text that does not fit into the summary
	handle              handler
	op                  brig.Op // operation that must be permitted before the body is read; for a route with a body
	maxBody             int64   // maximum size of the body in bytes, httpapi.SmallBody if zero
	public              bool    // needs no key
	query               []parameter
	in                  any      // type of the request body, if any
	optional            bool     // the body may be empty
	archive             bool     // the body is an archive
	octets              bool     // the body is or may be raw bytes
	out                 any      // type of the response
	status              int      // status of the response, 200 if zero
	text                bool     // the response is text
	page                bool     // the response is an HTML page
	lax                 bool     // unknown query parameters are allowed
	file                bool     // the response is a file's content or a range of it
	isFile              bool     // the response is a file's content
	longLived           bool     // the response continues until the client disconnects
	events              []string // events that the route can stream before its result
	streamed            bool     // the response is always a stream of events
	large               bool     // the response may need much memory and does not wait for a sandbox
	names               bool     // the path contains the name of a new object
}

// handler answers a request. q is its query.
type handler func(w http.ResponseWriter, r *http.Request, q url.Values) error

// routes returns all routes of the API. The router and the OpenAPI document are
// both built from this list.
func (a *api) routes() []route { return withStreams(a.table()) }

// table returns the routes of all resources.
func (a *api) table() (out []route) {
	b := a.base
	for _, noun := range []interface{ routes() []route }{
		authAPI{b}, tenancyAPI{b}, providerAPI{b}, execAPI{b}, sandboxAPI{b}, serverAPI{b}, codeAPI{b}, fileAPI{b}, processAPI{b}, portAPI{b}, imageAPI{b}, secretAPI{b}, workspaceAPI{b}, volumeAPI{b}, webhookAPI{b}, auditAPI{b},
	} {
		out = append(out, noun.routes()...)
	}
	return out
}
