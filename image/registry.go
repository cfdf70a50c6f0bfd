package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/brig-run/brig"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// registry is one place from which an image can be had: the registry that its
// reference names, or a mirror of it.
type registry struct {
	repo   name.Repository
	puller *remote.Puller
	wait   time.Duration // before it is asked again
	close  func()
}

// stall is how long a registry may say nothing.
const stall = 60 * time.Second

// places lists where to ask for an image, in that order.
func (s *Store) places(ref reference, p brig.ImagePull, missing bool) ([]*registry, error) {
	var all []*registry
	for _, m := range append(s.opts.Mirrors[ref.registry()], s.opts.Mirrors[ref.Context().RegistryStr()]...) {
		host, plain := strings.CutPrefix(m, "http://")
		host = strings.TrimSuffix(strings.TrimPrefix(host, "https://"), "/")
		r, err := s.place(host+"/"+ref.Context().RepositoryStr(), access{plain: plain, anywhere: true})
		if err != nil {
			return nil, brig.Errorf(brig.InvalidConfig, "images.mirrors: %.80q is not a registry", m).
				WithHint("for example mirror.example:5000").Because(err)
		}
		all = append(all, r)
	}
	// What the caller knows is for the registry that the caller named, and
	// what the operator allows by name may have any address.
	own, err := s.place(ref.repository(), access{
		plain: p.Insecure, anywhere: !missing || len(s.opts.Registries) > 0, username: p.Username, password: p.Password,
	})
	return append(all, own), err
}

// access is what is allowed with a registry.
type access struct {
	plain, anywhere    bool // over plain HTTP; at private addresses
	username, password string
}

func (s *Store) place(repo string, a access) (*registry, error) {
	var nameOpts []name.Option
	if a.plain {
		nameOpts = append(nameOpts, name.Insecure)
	}
	r, err := name.NewRepository(repo, nameOpts...)
	if err != nil {
		return nil, err
	}
	g := newGuard(a)
	opts := []remote.Option{
		remote.WithTransport(g), remote.WithUserAgent("brig"),
		// We ask again ourselves, for what was cut in the middle, too.
		remote.WithRetryBackoff(remote.Backoff{Duration: time.Millisecond, Steps: 1}),
	}
	switch {
	case a.username != "":
		opts = append(opts, remote.WithAuth(&authn.Basic{Username: a.username, Password: a.password}))
	case a.password != "":
		opts = append(opts, remote.WithAuth(&authn.Bearer{Token: a.password}))
	case s.opts.DockerConfig:
		opts = append(opts, remote.WithAuthFromKeychain(authn.DefaultKeychain))
	}
	puller, err := remote.NewPuller(opts...)
	if err != nil {
		return nil, err
	}
	return &registry{repo: r, puller: puller, wait: s.opts.retryWait, close: g.close}, nil
}

// guard is how we speak with registries: it holds requests to what is allowed,
// whatever a registry answers and wherever it sends us.
type guard struct {
	access
	direct, proxied *http.Transport
}

func newGuard(a access) *guard {
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	base := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: 15 * time.Second, ResponseHeaderTimeout: stall, IdleConnTimeout: stall,
	}
	g := &guard{access: a, proxied: base, direct: base.Clone()}
	g.direct.Proxy = nil
	if !a.anywhere {
		careful := *dialer
		careful.Control = func(_, address string, _ syscall.RawConn) error { return checkPublic(address) }
		g.direct.DialContext = careful.DialContext
	}
	return g
}

func (g *guard) close() {
	g.direct.CloseIdleConnections()
	g.proxied.CloseIdleConnections()
}

// The refusals of a guard.
var (
	errPlain     = errors.New("plain HTTP is not allowed")
	errNotPublic = errors.New("the address is not public")
)

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	host := r.URL.Hostname()
	if r.URL.Scheme != "https" && !g.plain && !isLoopback(host) {
		return nil, fmt.Errorf("%s: %w", host, errPlain)
	}
	t := g.direct
	if proxy, err := http.ProxyFromEnvironment(r); err == nil && proxy != nil {
		// The proxy resolves names and so has to judge them.
		if ip, err := netip.ParseAddr(host); err == nil && !g.anywhere && !isPublic(ip) {
			return nil, fmt.Errorf("%s: %w", host, errNotPublic)
		}
		t = g.proxied
	}
	resp, err := t.RoundTrip(r)
	first := r // a layer may be somewhere else by now
	for first.Response != nil && first.Response.Request != nil {
		first = first.Response.Request
	}
	if err == nil && !strings.Contains(first.URL.Path, "/blobs/sha256:") && resp.Body != nil {
		resp.Body = &boundBody{resp.Body, maxConfig + 1}
	}
	return resp, err
}

// boundBody ends with an error when there is more than n bytes of it.
type boundBody struct {
	io.ReadCloser
	n int
}

var errLarge = fmt.Errorf("an answer is larger than %d bytes", maxConfig)

// Read implements io.Reader.
func (b *boundBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.n -= n; b.n < 0 {
		return 0, errLarge
	}
	return n, err
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

func checkPublic(address string) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil || !isPublic(ap.Addr()) {
		return errNotPublic
	}
	return nil
}

func isPublic(ip netip.Addr) bool {
	ip = ip.Unmap()
	shared := netip.MustParsePrefix("100.64.0.0/10")
	nat64 := netip.MustParsePrefix("64:ff9b::/96")
	return ip.IsGlobalUnicast() && !ip.IsPrivate() && !shared.Contains(ip) && !nat64.Contains(ip) &&
		!netip.MustParsePrefix("0.0.0.0/8").Contains(ip) && !netip.MustParsePrefix("2002::/16").Contains(ip)
}

// allowed refuses registries that the operator's list does not have.
func (s *Store) allowed(ref reference) error {
	if len(s.opts.Registries) == 0 {
		return nil
	}
	full := ref.repository()
	for _, r := range s.opts.Registries {
		r = strings.TrimSuffix(r, "/")
		host, rest, _ := strings.Cut(r, "/")
		if r = strings.TrimSuffix(registryName(host)+"/"+rest, "/"); full == r || strings.HasPrefix(full, r+"/") {
			return nil
		}
	}
	return brig.Errorf(brig.PolicyBlocked, "images may not be pulled from %s here", clip(ref.registry())).
		WithHint("these are allowed: %s", strings.Join(s.opts.Registries, ", "))
}

// again calls f up to three times, as long as what goes wrong may pass.
func (r *registry) again(ctx context.Context, f func() error) error {
	wait := r.wait
	for n := 1; ; n++ {
		err := f()
		if err == nil || n == 3 || !passing(err) || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
		wait *= 3
	}
}
