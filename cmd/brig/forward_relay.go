package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/rest"
)

// maxRequestLine bounds the bytes of a connection that are read to detect HTTP.
const maxRequestLine = 64 << 10

// forwarder forwards connections into a sandbox. HTTP/1 passes through a proxy
// that removes Brig's cookies and keys from requests, and the sandbox's cookies
// for Brig from responses. All other protocols are forwarded unchanged.
type forwarder struct {
	sharedAddress bool // other servers on this machine use the same address
	dial          func(context.Context) (net.Conn, error)
	report        func(error)
	shield        httpapi.Shield
	web           *http.Server
	conns         chan net.Conn // connections for web
}

func newForwarder(shared bool, dial func(context.Context) (net.Conn, error), report func(error)) *forwarder {
	f := &forwarder{sharedAddress: shared, dial: dial, report: report, conns: make(chan net.Conn)}
	quiet := log.New(io.Discard, "", 0)
	f.web = &http.Server{
		Handler:  http.HandlerFunc(f.proxy),
		ErrorLog: quiet,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, webConnKey{}, c)
		},
	}
	return f
}

// serve forwards the connections that ln accepts until ctx ends.
func (f *forwarder) serve(ctx context.Context, ln net.Listener) error {
	defer ln.Close()
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.web.BaseContext = func(net.Listener) context.Context { return ctx }
	go func() { _ = f.web.Serve(connListener{ctx, ln.Addr(), f.conns}) }()
	defer func() { _ = f.web.Close() }() // never fails
	for {
		conn, err := ln.Accept()
		if ctx.Err() != nil {
			return nil // the user interrupted the command, which is its normal end
		}
		if err != nil {
			return err
		}
		go f.forwardConn(ctx, conn)
	}
}

// forwardConn forwards one connection.
func (f *forwarder) forwardConn(ctx context.Context, conn net.Conn) {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	inside, err := f.dial(ctx)
	if err != nil {
		conn.Close()
		f.report(err)
		return
	}
	defer context.AfterFunc(ctx, func() { inside.Close() })()
	// In some protocols the server sends first, so read from both ends
	// concurrently.
	far := readAhead(inside)
	near := &clientConn{Conn: conn, r: bufio.NewReaderSize(conn, maxRequestLine), known: make(chan protocol, 1)}
	go func() { near.known <- protocolOf(near.r) }()
	select {
	case <-far.ready:
		if looksLikeHTTP(far.readAhead) {
			break // a response follows a request: wait for the request
		}
		near.serverFirst = true
	case p := <-near.known:
		near.known <- p
	}
	if !near.serverFirst {
		switch p := <-near.known; {
		case p == protocolHTTP:
			f.serveHTTP(ctx, near, far)
			return
		case p == protocolTLS && f.sharedAddress:
			conn.Close()
			inside.Close()
			f.report(brig.Errorf(brig.FailedPrecondition, "TLS is rejected on %s: the sandbox would receive the browser's cookies", sharedLoopback).
				WithHint("use HTTP, or give the sandbox a loopback address of its own, as described in the warning at the start"))
			return
		default:
			near.known <- p
		}
	}
	near.refuses = func(p protocol) bool { return p == protocolHTTP || p == protocolTLS && f.sharedAddress }
	rest.Relay(near, far)
}

// serveHTTP passes a connection to the proxy.
func (f *forwarder) serveHTTP(ctx context.Context, near *clientConn, far *readAheadConn) {
	w := &webConn{clientConn: near, closed: make(chan struct{})}
	w.known <- protocolHTTP // Read may now return data
	first := make(chan net.Conn, 1)
	first <- far
	w.unused = first
	w.transport = &http.Transport{
		DisableCompression: true,
		Proxy:              nil,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			select {
			case c := <-first:
				return c, nil
			default:
				return f.dial(ctx)
			}
		},
	}
	select {
	case f.conns <- w:
		<-w.closed
	case <-ctx.Done():
		_ = w.Close() // the connection ends anyway
	}
}

type webConnKey struct{}

// proxy forwards a request to the sandbox, and the response back.
func (f *forwarder) proxy(w http.ResponseWriter, r *http.Request) {
	conn, ok := r.Context().Value(webConnKey{}).(*webConn)
	if !ok {
		http.Error(w, "no connection", http.StatusInternalServerError)
		return
	}
	f.shield.Forward(httputil.ReverseProxy{
		Transport:     conn.transport,
		FlushInterval: -1,
		ErrorLog:      f.web.ErrorLog,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = "http", "sandbox"
			p.Out.URL.RawQuery = p.In.URL.RawQuery
			p.Out.Host = p.In.Host
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil {
				f.report(brig.Errorf(brig.ConnectionFailed, "the port did not answer a request").Because(err))
			}
			w.WriteHeader(http.StatusBadGateway)
		},
	}, w, r)
}

// clientConn is the client's end of a connection. Its bytes are forwarded once
// the protocol is known.
type clientConn struct {
	net.Conn
	r           *bufio.Reader
	known       chan protocol
	serverFirst bool // the server sent first
	refuses     func(protocol) bool
	once        sync.Once
	err         error
}

var errRequestLate = errors.New("a request came where the server had spoken first")

// Read implements io.Reader.
func (c *clientConn) Read(p []byte) (int, error) {
	c.once.Do(func() {
		if got := <-c.known; c.refuses != nil && c.refuses(got) {
			c.err = errRequestLate
		}
	})
	if c.err != nil {
		return 0, c.err
	}
	return c.r.Read(p)
}

// CloseWrite closes the write side of the connection.
func (c *clientConn) CloseWrite() error { return closeWrite(c.Conn) }

// webConn is a connection that the proxy serves.
type webConn struct {
	*clientConn
	transport *http.Transport
	unused    chan net.Conn // the connection into the sandbox, until the first request uses it
	end       sync.Once
	closed    chan struct{}
}

// Close implements net.Conn.
func (w *webConn) Close() error {
	w.end.Do(func() {
		select {
		case c := <-w.unused:
			c.Close()
		default:
		}
		w.transport.CloseIdleConnections()
		close(w.closed)
	})
	return w.clientConn.Close()
}

// readAheadConn is the sandbox's end of a connection. Its first bytes are read in the background.
type readAheadConn struct {
	net.Conn
	ready     chan struct{} // closed when first and err are set
	readAhead []byte
	err       error
}

func readAhead(c net.Conn) *readAheadConn {
	a := &readAheadConn{Conn: c, ready: make(chan struct{})}
	go func() {
		defer close(a.ready)
		b := make([]byte, 4<<10)
		n, err := c.Read(b)
		a.readAhead, a.err = b[:n], err
	}()
	return a
}

// Read implements io.Reader.
func (a *readAheadConn) Read(p []byte) (int, error) {
	<-a.ready
	if len(a.readAhead) > 0 {
		n := copy(p, a.readAhead)
		a.readAhead = a.readAhead[n:]
		return n, nil
	}
	if a.err != nil {
		return 0, a.err
	}
	return a.Conn.Read(p)
}

// CloseWrite closes the write side of the connection.
func (a *readAheadConn) CloseWrite() error { return closeWrite(a.Conn) }

func closeWrite(c net.Conn) error {
	half, ok := c.(interface{ CloseWrite() error })
	if !ok {
		return net.ErrClosed
	}
	return half.CloseWrite()
}

// connListener is a listener of connections that were accepted elsewhere.
type connListener struct {
	ctx   context.Context
	addr  net.Addr
	conns chan net.Conn
}

// Accept implements net.Listener.
func (h connListener) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (connListener) Close() error { return nil }

// Addr implements net.Listener.
func (h connListener) Addr() net.Addr { return h.addr }

// protocol is the protocol that the client's first bytes indicate.
type protocol int

const (
	protocolOther protocol = iota
	protocolHTTP
	protocolTLS
)

// protocolOf detects the protocol of a client from its first line, without
// consuming it.
func protocolOf(r *bufio.Reader) protocol {
	for n := 1; ; n++ {
		_, err := r.Peek(n)
		if errors.Is(err, bufio.ErrBufferFull) {
			return protocolHTTP // the HTTP parser rejects such a long line
		}
		if err != nil {
			return protocolOther // the connection ended within the line
		}
		b, _ := r.Peek(r.Buffered())
		n = len(b)
		if p, decided := firstLine(b); decided {
			return p
		}
	}
}

// firstLine returns the protocol of the first bytes of a connection once it can be determined. It
// stays undecided while the line may still become HTTP, because the relay cannot filter bytes that
// it has already forwarded.
func firstLine(b []byte) (p protocol, decided bool) {
	if b[0] == 0x16 {
		return protocolTLS, true
	}
	line, _, whole := bytes.Cut(b, []byte("\n"))
	line = bytes.TrimSuffix(line, []byte("\r"))
	method, rest, spaced := bytes.Cut(line, []byte(" "))
	if len(method) == 0 && (spaced || whole) || bytes.ContainsFunc(method, isNotTokenChar) {
		return protocolOther, true
	}
	if bytes.ContainsFunc(rest, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
		return protocolOther, true
	}
	if !whole {
		return protocolOther, false
	}
	if string(line) == "PRI * HTTP/2.0" { // no browser uses HTTP/2 without TLS
		return protocolOther, true
	}
	if spaced && bytes.Contains(bytes.ToUpper(rest), []byte("HTTP/")) {
		return protocolHTTP, true
	}
	return protocolOther, true
}

// isNotTokenChar reports whether a character cannot be part of an HTTP method.
func isNotTokenChar(c rune) bool {
	return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", c))
}

// looksLikeHTTP reports whether a server's first bytes may be an HTTP response.
func looksLikeHTTP(b []byte) bool {
	const statusPrefix = "HTTP/"
	n := min(len(b), len(statusPrefix))
	return n > 0 && bytes.EqualFold(b[:n], []byte(statusPrefix[:n]))
}
