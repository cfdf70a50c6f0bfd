package webhook

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/outbound"
	"github.com/brig-run/brig/internal/version"
)

const (
	pageSize      = 200 // lines that a webhook reads at once
	tenantWorkers = 4   // webhooks of a tenant that are served at the same time
	workers       = 64  // of all tenants
	maxResponse   = 64 << 10
	serveTime     = 10 * time.Second // after which another webhook has its turn
	storeSkipped  = 1000             // lines that are no events, after which the position is stored
	minAttempts   = 3                // of an event before it is abandoned
)

// Store is the part of brig.Store that a Deliverer uses.
type Store interface {
	brig.WebhookStore
	Audit(ctx context.Context, tenant string, q brig.AuditQuery) ([]brig.AuditLine, error)
	AuditHeads(ctx context.Context) ([]brig.AuditHead, error)
}

// Options configure a Deliverer. Store and Open are required.
type Options struct {
	Store Store
	// Open decrypts the secret of a webhook.
	Open func(w *brig.Webhook) (secret []byte, err error)
	// Private permits receivers at addresses of this host and of private networks.
	Private bool
	// Interval is the time between two reads of the audit log. Default: 500 ms.
	Interval time.Duration
	// RetryDelay is the delay before the first retry of a delivery. It doubles with each retry, up to
	// five minutes. Default: 1 s.
	RetryDelay time.Duration
	// GiveUp is the time after which the delivery of an event is abandoned. Default: 24 h.
	GiveUp time.Duration
	// Timeout bounds one attempt. Default: 10 s.
	Timeout time.Duration
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	Log *slog.Logger
}

const maxRetryDelay = 5 * time.Minute

// Deliverer delivers events.
type Deliverer struct {
	Options
	client *http.Client

	mu      sync.Mutex // guards the fields below
	running map[string]*job
	busy    map[string]int // jobs that deliver now, by tenant
}

// job is the state of a webhook that is being served.
type job struct {
	active   bool
	served   time.Time // when it was served last
	attempts int       // of the next event
	next     time.Time // when it may be tried again
	seq      int64     // the line of the event
	changed  time.Time // the webhook's last change by a call, after which it is tried at once
	// from and skipped are the stored position of the webhook, and the last of the lines after it that
	// are no events for the webhook. This position is rarely stored, because most lines are none.
	from, skipped int64
}

// position returns the last line that a webhook needs no longer.
func (j *job) position(w *brig.Webhook) int64 {
	if j != nil && j.from == w.Seq {
		return max(w.Seq, j.skipped)
	}
	return w.Seq
}

// New returns a Deliverer. Run starts it.
func New(o Options) *Deliverer {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	set(&o.Interval, 500*time.Millisecond)
	set(&o.RetryDelay, time.Second)
	set(&o.GiveUp, 24*time.Hour)
	set(&o.Timeout, 10*time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	check := func(_ string, addr netip.Addr) error {
		if o.Private {
			return brig.CheckConfiguredAddr("", addr)
		}
		return brig.CheckForeignAddr(addr)
	}
	transport := outbound.NewDefaultTransport(check)
	if !o.Private { // a proxy would look up the names of tenants, and connect to addresses that check rejects
		transport = outbound.NewTransport(&http.Transport{
			ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: o.Timeout, MaxResponseHeaderBytes: maxResponse,
		}, net.Dialer{Timeout: o.Timeout}, check)
	}
	return &Deliverer{
		Options: o, running: map[string]*job{}, busy: map[string]int{},
		client: &http.Client{
			Timeout: o.Timeout, Transport: transport,
			// A redirect could lead to another receiver than the tenant named.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Run delivers events until ctx is done.
func (d *Deliverer) Run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	tick := time.NewTicker(d.Interval)
	defer tick.Stop()
	for {
		if err := d.dispatch(ctx, &group); err != nil && ctx.Err() == nil {
			d.Log.Error("failed to look for events to deliver", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// dispatch starts a job for each webhook that lacks events.
func (d *Deliverer) dispatch(ctx context.Context, group *sync.WaitGroup) error {
	all, err := d.Store.Webhooks(ctx, "")
	if err != nil {
		return err
	}
	d.forgetOthers(all)
	if len(all) == 0 {
		return nil
	}
	heads, err := d.Store.AuditHeads(ctx)
	if err != nil {
		return err
	}
	newest := map[string]int64{}
	for _, h := range heads {
		newest[h.Tenant] = h.Seq
	}
	d.sortByService(all)
	for _, w := range all {
		if w.Enabled && d.begin(w, newest[w.Tenant]) {
			group.Go(func() {
				defer d.end(w)
				if err := d.serve(ctx, w.Tenant, w.ID); err != nil && ctx.Err() == nil && brig.KindOf(err) != brig.NotFound {
					d.Log.Error("failed to deliver events", "webhook", w.ID, "err", err)
				}
			})
		}
	}
	return nil
}

// sortByService sorts the webhooks that were served least recently first. Otherwise the first ones would take
// all places again and again.
func (d *Deliverer) sortByService(all []*brig.Webhook) {
	d.mu.Lock()
	defer d.mu.Unlock()
	served := func(w *brig.Webhook) time.Time {
		if j := d.running[w.ID]; j != nil {
			return j.served
		}
		return time.Time{}
	}
	slices.SortStableFunc(all, func(a, b *brig.Webhook) int { return served(a).Compare(served(b)) })
}

// forgetOthers forgets webhooks that no longer exist.
func (d *Deliverer) forgetOthers(all []*brig.Webhook) {
	known := map[string]bool{}
	for _, w := range all {
		known[w.ID] = true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, j := range d.running {
		if !known[id] && !j.active {
			delete(d.running, id)
		}
	}
}

// begin reports whether a webhook lacks lines up to the newest one, and may be served now.
func (d *Deliverer) begin(w *brig.Webhook, newest int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	j := d.running[w.ID]
	if j == nil {
		j = &job{}
		d.running[w.ID] = j
	}
	if !j.changed.Equal(w.Updated) {
		j.changed, j.next = w.Updated, time.Time{}
	}
	if newest <= j.position(w) {
		return false
	}
	total := 0
	for _, n := range d.busy {
		total += n
	}
	if j.active || d.Now().Before(j.next) || d.busy[w.Tenant] >= tenantWorkers || total >= workers {
		return false
	}
	j.active, j.served = true, d.Now()
	d.busy[w.Tenant]++
	return true
}

func (d *Deliverer) end(w *brig.Webhook) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running[w.ID].active = false
	if d.busy[w.Tenant]--; d.busy[w.Tenant] == 0 {
		delete(d.busy, w.Tenant)
	}
}

// serve delivers a page of events to a webhook, until a delivery fails or the time for it has passed. The
// other webhooks are served before it is served again.
func (d *Deliverer) serve(ctx context.Context, tenant, id string) error {
	w, err := d.Store.GetWebhook(ctx, tenant, id)
	if err != nil || !w.Enabled {
		return err
	}
	d.mu.Lock()
	after := d.running[id].position(w)
	d.mu.Unlock()
	lines, err := d.Store.Audit(ctx, tenant, brig.AuditQuery{After: after, Limit: pageSize})
	if err != nil || len(lines) == 0 {
		return err
	}
	if lost := lines[0].Seq - after - 1; lost > 0 {
		d.Log.WarnContext(ctx, "lines of the audit log were removed before a webhook received them", "webhook", w.ID, "lines", lost)
	}
	last, end := after, d.Now().Add(serveTime)
	for _, l := range lines {
		last = l.Seq
		e, ok := brig.LifecycleOf(l)
		if !ok || !(brig.LifecycleQuery{Types: w.Types, Labels: w.Labels}).Includes(e) {
			continue
		}
		done, err := d.deliver(ctx, w, e)
		if err == nil {
			seq := e.Seq
			if !done {
				seq--
			}
			err = d.advance(ctx, w, seq, !done)
		}
		if err != nil || !done {
			return err
		}
		if !w.Enabled || d.Now().After(end) {
			return nil
		}
	}
	if last-w.Seq >= storeSkipped {
		return d.advance(ctx, w, last, false)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running[id].from, d.running[id].skipped = w.Seq, last
	return nil
}

// advance records that a webhook has all events up to a line, and whether the next one fails. If a call
// has changed the webhook's position meanwhile, that one remains, and the job ends.
func (d *Deliverer) advance(ctx context.Context, w *brig.Webhook, seq int64, failing bool) error {
	from := w.Seq
	for {
		if w.Seq != from {
			return errMoved
		}
		since := time.Time{}
		if failing {
			if since = w.FailingSince; since.IsZero() {
				since = d.Now().UTC()
			}
		}
		if w.Seq == seq && w.FailingSince.Equal(since) {
			return nil
		}
		w.Seq, w.FailingSince = seq, since
		err := d.Store.PutWebhook(ctx, w)
		if err == nil && !failing {
			d.clearDelay(w.ID)
		}
		if brig.KindOf(err) != brig.FailedPrecondition {
			return err
		}
		current, err := d.Store.GetWebhook(ctx, w.Tenant, w.ID)
		if err != nil {
			return err
		}
		*w = *current
	}
}

// errMoved is the error for a webhook whose position a call has changed.
var errMoved = brig.Errorf(brig.NotFound, "the webhook delivers other events now")

// deliver makes one attempt, and reports whether the event needs no other one.
func (d *Deliverer) deliver(ctx context.Context, w *brig.Webhook, e brig.LifecycleEvent) (done bool, err error) {
	attempts := d.countAttempt(w.ID, e.Seq)
	begin := d.Now()
	out := &brig.Delivery{
		ID: deliveryID(w, e), Webhook: w.ID, Tenant: w.Tenant, Event: e.ID, Type: e.Type, Sandbox: e.Sandbox, Seq: e.Seq, At: begin.UTC(), Attempts: attempts,
	}
	out.Status, err = d.send(ctx, w, e, out.ID)
	if ctx.Err() != nil { // the server stops, and the next one tries again
		return false, context.Cause(ctx)
	}
	out.Duration, out.Delivered = d.Now().Sub(begin), err == nil
	if err != nil {
		out.Error = brig.Clip(brig.AsError(err).Message, 300)
	}
	// If the results cannot be stored, the event is delivered again, but not at once.
	d.delay(w.ID, attempts)
	if err := d.Store.PutDelivery(ctx, out); err != nil {
		return false, err
	}
	return out.Delivered || attempts >= minAttempts && !w.FailingSince.IsZero() && d.Now().Sub(w.FailingSince) > d.GiveUp, nil
}

// deliveryID returns the ID of the delivery of an event.
func deliveryID(w *brig.Webhook, e brig.LifecycleEvent) string {
	space, err := uuid.Parse(w.ID)
	if err != nil {
		space = uuid.NameSpaceOID
	}
	return uuid.NewSHA1(space, []byte(e.ID)).String()
}

// countAttempt returns the number of attempts for an event, including the next one.
func (d *Deliverer) countAttempt(id string, seq int64) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	j := d.running[id]
	if j.seq != seq {
		j.seq, j.attempts = seq, 0
	}
	j.attempts++
	return j.attempts
}

// delay postpones the next attempt.
func (d *Deliverer) delay(id string, attempts int) {
	wait := d.RetryDelay
	for range attempts - 1 {
		if wait *= 2; wait >= maxRetryDelay {
			wait = maxRetryDelay
			break
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running[id].next = d.Now().Add(wait)
}

// clearDelay permits the next attempt at once.
func (d *Deliverer) clearDelay(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running[id].next = time.Time{}
}

// send sends an event. Its error is for the tenant.
func (d *Deliverer) send(ctx context.Context, w *brig.Webhook, e brig.LifecycleEvent, delivery string) (status int, err error) {
	secret, err := d.Open(w)
	if err != nil {
		return 0, brig.Errorf(brig.Internal, "the secret of the webhook cannot be decrypted").Because(err)
	}
	b, err := body(w.Tenant, e)
	if err != nil {
		return 0, fmt.Errorf("encode event: %w", err)
	}
	rq, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(b))
	if err != nil {
		return 0, brig.Errorf(brig.InvalidArgument, "the URL cannot be requested").Because(err)
	}
	h := rq.Header
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", "brig/"+version.String())
	h.Set(headerWebhook, w.ID)
	h.Set(headerDelivery, delivery)
	h.Set(headerVersion, signatureVersion)
	h.Set(E2BSignature, SignE2B(string(secret), b))
	h.Set(Signature, Sign(string(secret), d.Now(), b))
	resp, err := d.client.Do(rq)
	if err != nil {
		// The causes can name hosts and addresses of the server's network.
		return 0, brig.Errorf(brig.ConnectionFailed, "the receiver did not respond, or has no public address").Because(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxResponse)) // so that the connection can be used again
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return resp.StatusCode, brig.Errorf(brig.ConnectionFailed, "the receiver responded with the status %d", resp.StatusCode)
	}
	return resp.StatusCode, nil
}
