package execman

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
	"github.com/brig-run/brig/remote"
)

// languages are those of its programs.
var languages = []brig.Language{brig.Python, brig.JavaScript}

// queueTime is how long a program waits here while the service has as many as
// it is given at once.
const queueTime = 10 * time.Second

// maxAnswer is the longest answer: artifacts in base64, and the output.
const maxAnswer = 320 << 20

// Provider runs programs at one executor manager.
type Provider struct {
	site   brig.Site
	config Config
	client *remote.Client
	seats  chan struct{}
}

var (
	_ brig.Provider = (*Provider)(nil)
	_ brig.Runner   = (*Provider)(nil)
	_ brig.Checker  = (*Provider)(nil)
)

// Open returns a provider. It connects to nothing yet.
func Open(site brig.Site, c Config) (*Provider, error) {
	at, err := brig.ParseEndpoint("endpoint", c.Endpoint, c.AllowPrivate)
	if err != nil {
		return nil, err
	}
	client, err := remote.New(remote.Options{Endpoint: at, Pin: c.PinSHA256, Authority: c.Authority, Called: site.Called, Max: maxAnswer})
	if err != nil {
		return nil, err
	}
	return &Provider{site: site, config: c, client: client, seats: make(chan struct{}, max(c.PoolSize, 1))}, nil
}

// Close implements io.Closer.
func (p *Provider) Close() error { return p.client.Close() }

// Capabilities implements brig.Provider.
func (p *Provider) Capabilities() brig.Capabilities {
	return brig.Capabilities{Name: Name, Isolation: "an executor manager elsewhere", RunsOnly: true, Enforces: remote.Elsewhere("the executor manager")}
}

// Create implements brig.Provider.
func (p *Provider) Create(context.Context, brig.ID, brig.Spec, time.Time) (brig.Instance, error) {
	return nil, brig.Errorf(brig.Unimplemented, "%s has no sandboxes, it only runs programs", Title).WithHint("run the program whole, or choose another provider")
}

// Recover implements brig.Provider.
func (p *Provider) Recover(_ context.Context, id brig.ID, _ brig.Handle) (brig.Instance, error) {
	return nil, brig.Errorf(brig.NotFound, "no machine %s", id)
}

// Sweep implements brig.Provider.
func (p *Provider) Sweep(context.Context, map[brig.ID]bool) (int, error) { return 0, nil }

// Check implements brig.Checker.
func (p *Provider) Check(ctx context.Context) error {
	a, err := p.client.Do(ctx, remote.Request{Operation: "health", Method: http.MethodGet, Path: "/healthz"})
	if err != nil {
		return err
	}
	var health struct {
		Status string `json:"status"`
	}
	if a.Status != http.StatusOK {
		return refusal(a)
	}
	if json.Unmarshal(a.Body, &health) != nil || health.Status != "ok" {
		return stranger()
	}
	return nil
}

func stranger() *brig.Error {
	return brig.Errorf(brig.ConnectionFailed, "what answers at the endpoint is no executor manager").
		WithHint("have an operator look at the provider's endpoint: GET /healthz should say {\"status\":\"ok\"}")
}

// errOutOfTime ends a call whose program had its time.
var errOutOfTime = errors.New("the program's time is over")

// Run implements brig.Runner.
func (p *Provider) Run(ctx context.Context, id brig.ID, prog brig.Program, sio brig.IO) (*brig.Outcome, error) {
	if err := remote.Fits(prog, sio, Title, languages...); err != nil {
		return nil, err
	}
	source := prepare(prog)
	body, err := json.Marshal(source.request)
	if err != nil {
		return nil, fmt.Errorf("encode program %s: %w", id, err)
	}
	leave, err := p.seat(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	limit := time.Duration(p.config.Timeout) * time.Second
	if prog.Timeout > 0 {
		limit = min(limit, prog.Timeout)
	}
	o := remote.Begin(prog, sio)
	var said *wire.ExecmanResult
	err = remote.Retry(ctx, p.log(id), "run", p.config.MaxRetries, func() error {
		o.Started = time.Now().UTC()
		runCtx, cancel := context.WithTimeoutCause(ctx, limit, errOutOfTime)
		defer cancel()
		said, err = p.call(runCtx, body)
		return err
	})
	switch {
	case err == nil:
		return o, p.settle(o, prog, source, sio, said)
	case ctx.Err() != nil:
		return nil, err
	case errors.Is(err, errOutOfTime) && errors.Is(err, brig.ErrBegan):
		remote.TimedOut(o, limit.String())
		return o, remote.Finish(o, prog, sio, nil, nil)
	case errors.Is(err, errOutOfTime):
		return nil, brig.Errorf(brig.ConnectionFailed, "the service took no request within %v", limit).Because(err)
	}
	return nil, err
}

func (p *Provider) log(id brig.ID) *slog.Logger {
	return p.site.Log.With("provider", p.site.ID, "sandbox", id)
}

// seat waits until the service may be given one more program.
func (p *Provider) seat(ctx context.Context) (leave func(), err error) {
	timer := time.NewTimer(queueTime)
	defer timer.Stop()
	select {
	case p.seats <- struct{}{}:
		return func() { <-p.seats }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-timer.C:
		return nil, busy("%d programs run there at once, which is what it is given", cap(p.seats))
	}
}

func busy(format string, args ...any) *brig.Error {
	e := brig.Errorf(brig.RateLimited, format, args...).WithHint("try again in a moment, or raise the provider's pool_size if the service has room")
	e.RetryAfter = time.Second
	return e
}

// call makes one attempt. What the service says of itself, and not of the
// program, is an error.
func (p *Provider) call(ctx context.Context, body []byte) (*wire.ExecmanResult, error) {
	a, err := p.client.Do(ctx, remote.Request{
		Operation: "run", Method: http.MethodPost, Path: "/run", Body: body,
		Header: http.Header{"Content-Type": {wire.JSON}},
	})
	if err != nil {
		return nil, err
	}
	if a.Status != http.StatusOK {
		return nil, refusal(a)
	}
	var said wire.ExecmanResult
	if err := json.Unmarshal(a.Body, &said); err != nil || said.Status == "" {
		return nil, stranger().Because(errors.Join(err, brig.ErrBegan))
	}
	return &said, verdict(&said)
}

// refusal translates an answer that is no result.
func refusal(a *remote.Answer) error {
	said := errors.New("HTTP " + strconv.Itoa(a.Status) + ": " + brig.Clip(string(a.Body), 500))
	switch {
	case a.Status == http.StatusUnprocessableEntity || a.Status == http.StatusBadRequest || a.Status == http.StatusRequestEntityTooLarge:
		return brig.Errorf(brig.InvalidArgument, "the executor manager refuses the request (HTTP %d)", a.Status).
			WithHint("give less code and smaller arguments, or choose another provider").Because(said)
	case a.Status == http.StatusUnauthorized || a.Status == http.StatusForbidden:
		return brig.Errorf(brig.ConnectionFailed, "the executor manager does not let this server in (HTTP %d)", a.Status).
			WithHint("have its operator add this server's address to its allowlist").Because(said)
	case a.Status == http.StatusTooManyRequests:
		e := busy("the executor manager takes no more requests for now").Because(said)
		if n, err := strconv.Atoi(a.Header.Get("Retry-After")); err == nil && n >= 0 && n < 3600 {
			e.RetryAfter = time.Duration(n) * time.Second
		}
		return e
	case a.Status == http.StatusServiceUnavailable:
		return brig.Errorf(brig.Unavailable, "the executor manager is unavailable").WithHint("try again in a moment").Because(said)
	case a.Status >= 500:
		return brig.Errorf(brig.Unavailable, "the executor manager failed (HTTP %d)", a.Status).
			WithHint("see its log").Because(errors.Join(said, brig.ErrBegan))
	}
	return stranger().Because(said)
}
