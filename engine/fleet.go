package engine

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brig-run/brig"
)

// member is a provider in use.
type member struct {
	id       string
	provider brig.Provider
	runsOnly bool // as its capabilities say
	health   breaker

	mu      sync.Mutex // guards the fields below
	users   int        // sandboxes and programs that are there
	retired bool       // nobody new comes
}

func newMember(id string, p brig.Provider) *member {
	return &member{id: id, provider: p, runsOnly: p.Capabilities().RunsOnly}
}

// enter counts one more user, of at most so many; 0 is no bound.
func (m *member) enter(most int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.retired:
		return brig.Errorf(brig.Unavailable, "the provider %s was just changed", m.id).WithHint("try again").Because(errChanged)
	case most > 0 && m.users >= most:
		err := brig.Errorf(brig.RateLimited, "the provider %s is full: it has %d", m.id, most).WithHint("try again in a moment, or have others take what it cannot: brig provider route")
		err.RetryAfter = time.Second
		return err
	}
	m.users++
	return nil
}

// hold counts a user that is there already once more, until leave.
func (m *member) hold() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.users++
}

// leave counts one user less. The last one of a retired member closes it.
func (m *member) leave() error {
	m.mu.Lock()
	m.users--
	over := m.retired && m.users == 0
	m.mu.Unlock()
	if over {
		return m.close()
	}
	return nil
}

// retire lets nobody new come. What is there stays until it ends.
func (m *member) retire() error {
	m.mu.Lock()
	over := !m.retired && m.users == 0
	m.retired = true
	m.mu.Unlock()
	if over {
		return m.close()
	}
	return nil
}

func (m *member) close() error {
	if c, ok := m.provider.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// busy is how many users there are.
func (m *member) busy() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.users
}

// fleet are the providers that there are. What is known of them at one moment
// is never changed, and replaced as a whole: what goes on is not disturbed by
// an administrator.
type fleet struct {
	now      atomic.Pointer[lineup]
	changing sync.Mutex // held while now is replaced
}

// lineup is what is known of all providers at one moment.
type lineup struct {
	active  string // the id of the active one, or none
	members map[string]*member
	broken  map[string]error // those that are configured and could not be opened
	terms   map[string]brig.Terms
	routing map[string]brig.Routing // by tenant, "" for everybody
	rows    map[string]brig.Setting // what all this was made of
}

// NoProvider, as Options.Active, has no provider be active until a setting
// names one.
const NoProvider = "none"

// newFleet returns a fleet of the one provider that a server always has.
func newFleet(home *member, active string) *fleet {
	f := &fleet{}
	f.now.Store(&lineup{active: active, members: map[string]*member{home.id: home}})
	return f
}

// firstActive is the provider that is active until a setting says otherwise.
func (e *Engine) firstActive() string {
	if e.Active == NoProvider {
		return ""
	}
	return cmp.Or(e.Active, e.homeID)
}

// home is the member that is always there: the pool is its, and so are images.
func (e *Engine) home() *member { return e.fleet.now.Load().members[e.homeID] }

// isHome reports whether a member is the one that is always there.
func (e *Engine) isHome(m *member) bool { return m.id == e.homeID }

// memberOf finds the provider that made a sandbox.
func (e *Engine) memberOf(s *brig.Sandbox) (*member, error) {
	state := e.fleet.now.Load()
	if m := state.members[cmp.Or(s.Provider, e.homeID)]; m != nil {
		return m, nil
	}
	if cause := state.broken[s.Provider]; cause != nil {
		told := brig.AsError(cause)
		return nil, brig.Errorf(brig.Unavailable, "the provider %q of this sandbox cannot be used: %s", clip(s.Provider), told.Message).
			WithHint("%s", told.Hint).Because(cause)
	}
	return nil, brig.Errorf(brig.Unavailable, "the provider %q of this sandbox is not configured any more", clip(s.Provider)).
		WithHint("configure it again: brig provider configure").Because(errNotConfigured)
}

// errChanged is a cause of an error: the provider is not used any more.
var errChanged = errors.New("changed")

// errNotConfigured is a cause of an error: there is no such provider.
var errNotConfigured = errors.New("not configured")

// recovered finds the machine of a sandbox again.
func (e *Engine) recovered(ctx context.Context, r *brig.Record) (brig.Instance, error) {
	at, err := e.memberOf(&r.Sandbox)
	if err != nil {
		return nil, err
	}
	return at.provider.Recover(ctx, r.ID, r.Handle)
}

// sweep removes what nobody owns, at every provider.
func (e *Engine) sweep(ctx context.Context, known map[brig.ID]bool) (n int, err error) {
	for _, m := range e.fleet.now.Load().members {
		found, lost := m.provider.Sweep(ctx, known)
		n, err = n+found, errors.Join(err, lost)
	}
	return n, err
}

// imageAt finds the image that is meant at a provider.
func (e *Engine) imageAt(ctx context.Context, at *member, ref string) (*brig.Image, error) {
	if e.isHome(at) {
		return e.resolve(ctx, ref)
	}
	if p, ok := at.provider.(brig.Imager); ok {
		return p.Image(ctx, ref)
	}
	if ref != brig.HostImage {
		return nil, brig.InvalidField("image", "the provider %s has no images", at.id).WithHint("leave it out: sandboxes have there what is there")
	}
	return &brig.Image{Digest: brig.HostImage + ":" + at.id, Names: []string{brig.HostImage}, Source: "host"}, nil
}

// sight is under what is kept what machines of an image were seen to enforce.
func (e *Engine) sight(at *member, digest string) string {
	if e.isHome(at) {
		return digest
	}
	return at.id + " " + digest
}

// left says that a member has one user less.
func (e *Engine) left(at *member) {
	if at == nil {
		return
	}
	if err := at.leave(); err != nil {
		e.Log.Warn("close a provider that nobody uses any more", "provider", at.id, "err", err)
	}
}
