package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/brig-run/brig"
)

// Limits of a request to a server in a sandbox, and of its response.
const (
	maxAnswer         = brig.MiB
	maxAnswerHeader   = 64 * brig.KiB
	requestTimeout    = 30 * time.Second
	maxRequestTimeout = 10 * time.Minute
)

type requestIn struct {
	Sandbox string            `json:"sandbox" jsonschema:"a sandbox by name or id"`
	Port    int               `json:"port" jsonschema:"where a server in the sandbox listens"`
	Method  string            `json:"method,omitempty" jsonschema:"default GET"`
	Path    string            `json:"path,omitempty" jsonschema:"with the query, if there is one; default /"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body,omitempty"`
	Timeout float64           `json:"timeout_seconds,omitempty" jsonschema:"default 30, at most 600"`
}

type responseOut struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Text    string            `json:"text,omitempty"`
	Data    []byte            `json:"data_b64,omitempty" jsonschema:"the body, if it is not text"`
	More    bool              `json:"more,omitempty" jsonschema:"the body is longer, and this is its beginning"`
}

// sendHTTPRequest sends a request to a server in a sandbox. It connects only to the
// given port and does not follow redirects.
func (d *toolServer) sendHTTPRequest(ctx context.Context, _ *mcp.CallToolRequest, in *requestIn) (*responseOut, error) {
	req, err := in.toRequest()
	if err != nil {
		return nil, err
	}
	d.shield.RemoveCredentials(req)
	timeout, err := parseSeconds("timeout_seconds", in.Timeout)
	if err != nil {
		return nil, err
	}
	if timeout > maxRequestTimeout {
		return nil, brig.InvalidField("timeout_seconds", "%g is out of bounds", in.Timeout).WithHint("give up to %g", maxRequestTimeout.Seconds())
	}
	if timeout == 0 {
		timeout = requestTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	transport := &http.Transport{
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxAnswerHeader,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.service.Dial(ctx, in.Sandbox, in.Port)
		},
	}
	resp, err := transport.RoundTrip(req.WithContext(ctx))
	refused, fromService := errors.AsType[*brig.Error](err)
	switch {
	case err == nil:
	case fromService: // the error comes from the Service
		return nil, refused
	case errors.Is(err, context.DeadlineExceeded):
		return nil, brig.Errorf(brig.Timeout, "the server did not answer within %v", timeout).WithHint("raise timeout_seconds").Because(err)
	default:
		return nil, brig.Errorf(brig.ConnectionFailed, "what the server answers is not HTTP").WithHint("see what it writes with process_output").Because(err)
	}
	defer resp.Body.Close()
	return fromResponse(resp)
}

func (in *requestIn) toRequest() (*http.Request, error) {
	if in.Port < 1 || in.Port > 65535 {
		return nil, brig.InvalidField("port", "%d is out of bounds", in.Port).WithHint("give 1 to 65535")
	}
	path := in.Path
	if path == "" {
		path = "/"
	}
	u, err := url.ParseRequestURI(path)
	if err != nil || !strings.HasPrefix(path, "/") {
		return nil, brig.InvalidField("path", "it is not one").WithHint("begin it with /, and escape what needs to be").Because(err)
	}
	u.Scheme, u.Host = "http", fmt.Sprintf("localhost:%d", in.Port)
	method := strings.ToUpper(in.Method)
	if method == "" {
		method = http.MethodGet
	}
	if !slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}, method) {
		return nil, brig.InvalidField("method", "it is not one").WithHint("use GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS")
	}
	req := &http.Request{Method: method, URL: u, Host: u.Host, Header: http.Header{}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	if in.Body != "" {
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(in.Body)), int64(len(in.Body))
	}
	for k, v := range in.Headers {
		if strings.EqualFold(k, "Host") {
			req.Host = v
			continue
		}
		if !isHeader(k, v) {
			return nil, brig.InvalidField("headers", "there is one that cannot be sent").WithHint("names are words, values are one line")
		}
		req.Header.Set(k, v)
	}
	return req, nil
}

// isHeader reports whether a header is valid and not managed by the transport.
func isHeader(k, v string) bool {
	for _, own := range []string{"Connection", "Content-Length", "Transfer-Encoding", "Upgrade", "Trailer"} {
		if strings.EqualFold(k, own) {
			return false
		}
	}
	odd := func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c) }
	return k != "" && strings.IndexFunc(k, odd) < 0 && strings.IndexFunc(v, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) < 0
}

func fromResponse(resp *http.Response) (*responseOut, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil && len(body) == 0 {
		return nil, brig.Errorf(brig.ConnectionFailed, "the answer ended before it was whole").Because(err)
	}
	out := &responseOut{Status: resp.StatusCode, Headers: map[string]string{}, More: err != nil || len(body) > maxAnswer}
	body = body[:min(len(body), maxAnswer)]
	for k, v := range resp.Header {
		out.Headers[toValidUTF8([]byte(k))] = toValidUTF8([]byte(strings.Join(v, ", ")))
	}
	if isText(string(body)) {
		out.Text = string(body)
	} else {
		out.Data = body
	}
	return out, nil
}
