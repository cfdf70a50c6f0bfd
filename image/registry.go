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
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/hostaddr"
	"github.com/brig-run/brig/internal/outbound"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// registry is one source of an image: the registry that its reference names, or
// a mirror of it.
type registry struct {
	repo   name.Repository
	puller *remote.Puller
	wait   time.Duration // before a retry
	stall  time.Duration
	close  func()
}

// A pull is aborted if the registry sends fewer bytes than slowest in the time stall, because other
// pulls wait for its slot.
const (
	stall   = 60 * time.Second
	slowest = 512 << 10
)

// sources lists the registries to try for an image, in order.
func (s *Store) sources(ref reference, p brig.ImagePull, missing bool) ([]*registry, error) {
	var all []*registry
	for _, m := range append(s.opts.Mirrors[ref.registry()], s.opts.Mirrors[ref.Context().RegistryStr()]...) {
		host, plain := strings.CutPrefix(m, "http://")
		host = strings.TrimSuffix(strings.TrimPrefix(host, "https://"), "/")
		r, err := s.openRegistry(host+"/"+ref.Context().RepositoryStr(), access{plain: plain, anywhere: true})
		if err != nil {
			return nil, brig.Errorf(brig.InvalidConfig, "images.mirrors: %.80q is not a registry", m).
				WithHint("for example mirror.example:5000").Because(err)
		}
		all = append(all, r)
	}
	// Credentials of the caller go only to the registry that the caller named. A
	// registry that the operator allows by name may have any address.
	own, err := s.openRegistry(ref.repository(), access{
		plain: p.Insecure, anywhere: !missing || len(s.opts.Registries) > 0, username: p.Username, password: p.Password,
	})
	return append(all, own), err
}

// access holds the permissions and credentials for a registry.
type access struct {
	plain, anywhere    bool // allow plain HTTP; allow private addresses
	username, password string
}

func (s *Store) openRegistry(repo string, a access) (*registry, error) {
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
		// Disable the library's retries: registry.again retries, even after a
		// broken download.
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
	return &registry{repo: r, puller: puller, wait: s.opts.retryWait, stall: s.opts.stall, close: g.close}, nil
}

// guardedTransport is the HTTP transport for registries. It limits requests to permitted
// addresses, including redirects.
type guardedTransport struct {
	access
	transport *outbound.Transport
}

func newGuard(a access) *guardedTransport {
	return &guardedTransport{a, outbound.NewTransport(&http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 1 << 20,
		TLSHandshakeTimeout: 15 * time.Second, ResponseHeaderTimeout: stall, IdleConnTimeout: stall,
	}, net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}, a.checkAddress)}
}

// checkAddress refuses addresses that are not public. A registry that the operator has
// named may be in a private network, but not at a cloud metadata address.
func (a access) checkAddress(host string, addr netip.Addr) error {
	if a.anywhere {
		if brig.CheckConfiguredAddr(host, addr) != nil {
			return errNotPublic
		}
		return nil
	}
	if !isPublic(addr) || hostaddr.IsHost(addr) {
		return errNotPublic
	}
	return nil
}

func (g *guardedTransport) close() { g.transport.CloseIdleConnections() }

// These are the errors of a guarded transport.
var (
	errPlain     = errors.New("plain HTTP is not allowed")
	errNotPublic = errors.New("the address is not public")
)

// RoundTrip implements http.RoundTripper.
func (g *guardedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	host := r.URL.Hostname()
	if r.URL.Scheme != "https" && !g.plain && !isLoopback(host) {
		return nil, fmt.Errorf("%s: %w", host, errPlain)
	}
	resp, err := g.transport.RoundTrip(r)
	first := r // the first request: a layer may have been redirected
	for first.Response != nil && first.Response.Request != nil {
		first = first.Response.Request
	}
	if err == nil && !strings.Contains(first.URL.Path, "/blobs/sha256:") && resp.Body != nil {
		resp.Body = &boundBody{resp.Body, maxConfig + 1}
	}
	return resp, err
}

// boundBody returns an error after more than n bytes.
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

func isPublic(ip netip.Addr) bool {
	_, special := brig.SpecialNetwork(ip)
	return !special
}

// checkAllowed refuses registries that are not on the operator's list.
func (s *Store) checkAllowed(ref reference) error {
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

// retry calls f up to three times, as long as its error is temporary.
func (r *registry) retry(ctx context.Context, f func() error) error {
	wait := r.wait
	for n := 1; ; n++ {
		err := f()
		if err == nil || n == 3 || !isTemporary(err) || ctx.Err() != nil {
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
