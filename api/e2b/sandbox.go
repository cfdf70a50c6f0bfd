package e2b

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/brig-run/brig"
)

// Values that E2B's format requires but that have no meaning in this API.
const (
	clientID    = "6532622b" // old clients append it to the id
	envdVersion = "0.6.13"   // the envd version whose features the data plane supports
)

// connectedSandbox is the data that a client needs to use a sandbox.
type connectedSandbox struct {
	SandboxID          string  `json:"sandboxID"`
	TemplateID         string  `json:"templateID"`
	Alias              string  `json:"alias,omitempty"`
	ClientID           string  `json:"clientID"`
	EnvdVersion        string  `json:"envdVersion"`
	EnvdAccessToken    string  `json:"envdAccessToken"`
	TrafficAccessToken *string `json:"trafficAccessToken"`
	Domain             *string `json:"domain"`
}

func (sb *sandboxes) connected(ctx context.Context, s *brig.Sandbox) connectedSandbox {
	c := connectedSandbox{
		SandboxID: string(s.ID), TemplateID: s.Spec.Labels[labelTemplate], Alias: aliasOf(s),
		ClientID: clientID, EnvdVersion: envdVersion,
	}
	source, ok := sb.tokens.source(brig.ActorFrom(ctx))
	if ok {
		c.EnvdAccessToken = sb.tokens.token(string(s.ID), source)
	}
	if ok && !ofGrant(source) {
		sb.cache.recordKey(string(s.ID), s.Tenant, source)
	}
	if ok { // clients send the token to the code interpreter and to closed ports
		token := sb.tokens.trafficToken(string(s.ID), source)
		c.TrafficAccessToken = &token
	}
	if sb.Domain != "" {
		c.Domain = &sb.Domain
	}
	return c
}

// listedSandbox is a sandbox in a list.
type listedSandbox struct {
	SandboxID    string            `json:"sandboxID"`
	TemplateID   string            `json:"templateID"`
	Alias        string            `json:"alias,omitempty"`
	ClientID     string            `json:"clientID"`
	EnvdVersion  string            `json:"envdVersion"`
	StartedAt    time.Time         `json:"startedAt"`
	EndAt        time.Time         `json:"endAt"`
	CPUCount     int               `json:"cpuCount"`
	MemoryMB     int64             `json:"memoryMB"`
	DiskSizeMB   int64             `json:"diskSizeMB"`
	State        string            `json:"state"`
	Metadata     map[string]string `json:"metadata"`
	VolumeMounts []volumeMount     `json:"volumeMounts"`
}

// States of an existing sandbox.
const (
	stateRunning = "running"
	statePaused  = "paused"
)

func listed(s *brig.Sandbox) listedSandbox {
	state, end := stateRunning, s.Expires
	if s.State == brig.Paused {
		state = statePaused
		if s.Pause != nil { // Expires is the end of the saved state
			end = s.Pause.At
		}
	}
	return listedSandbox{
		SandboxID: string(s.ID), TemplateID: s.Spec.Labels[labelTemplate], Alias: aliasOf(s), ClientID: clientID, EnvdVersion: envdVersion,
		StartedAt: s.Created.UTC(), EndAt: end.UTC(), CPUCount: cpus(s.Spec.Limits),
		MemoryMB: s.Spec.Limits.Memory / brig.MiB, DiskSizeMB: s.Spec.Limits.Disk / brig.MiB,
		State: state, Metadata: metadata(s.Spec.Labels), VolumeMounts: mountsOf(s),
	}
}

// cpus returns the number of processors, rounded up, because E2B supports only
// whole processors.
func cpus(l brig.Limits) int { return max(1, int(math.Ceil(l.CPUs))) }

// detailedSandbox is the full description of a sandbox.
type detailedSandbox struct {
	listedSandbox
	EnvdAccessToken     string    `json:"envdAccessToken"`
	Domain              *string   `json:"domain"`
	AllowInternetAccess bool      `json:"allowInternetAccess"`
	Network             *network  `json:"network,omitempty"`
	Lifecycle           lifecycle `json:"lifecycle"`
}

type lifecycle struct {
	OnTimeout  string `json:"onTimeout"`
	AutoResume bool   `json:"autoResume"`
}

// finder finds the sandboxes that this API created, and caches data about them.
type finder struct {
	*env
	contexts defaultContexts
}

// find returns a running or paused sandbox of the caller's tenant that this API
// created. It returns NotFound for a sandbox that has ended, as E2B's clients
// expect.
func (f *finder) find(r *http.Request) (*brig.Sandbox, error) {
	id, err := parseID(param(r, "id"))
	if err != nil {
		return nil, err
	}
	s, err := f.lookUp(r.Context(), id)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, errNoSandbox(id)
	}
	return s, nil
}

// findAndRead is like find, and then reads the body, so that a missing sandbox
// is reported before an invalid body.
func (f *finder) findAndRead(w http.ResponseWriter, r *http.Request, in any) (*brig.Sandbox, error) {
	s, err := f.find(r)
	if err != nil {
		return nil, err
	}
	return s, read(w, r, in)
}

// findRunning is like find, and returns NotFound for a paused sandbox, as E2B
// does for requests that change a running one.
func (f *finder) findRunning(r *http.Request) (*brig.Sandbox, error) {
	s, err := f.find(r)
	if err == nil && s.State == brig.Paused {
		return nil, errNoSandbox(string(s.ID))
	}
	return s, err
}

// lookUp is like find, for the actor in ctx. It returns nil if the sandbox does
// not exist.
func (f *finder) lookUp(ctx context.Context, id string) (*brig.Sandbox, error) {
	s, err := f.Service.Get(ctx, id)
	if brig.KindOf(err) == brig.NotFound {
		f.forget(id)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// The Service also accepts names, but E2B has no names.
	if string(s.ID) != id || !createdByAPI(s) {
		return nil, nil
	}
	if s.State != brig.Running && s.State != brig.Paused {
		f.forget(id)
		return nil, nil
	}
	f.cache.add(id, s.Tenant)
	return s, nil
}

func (f *finder) forget(id string) {
	f.cache.remove(id)
	f.contexts.forget(id)
}

func errNoSandbox(id string) error {
	return brig.Errorf(brig.NotFound, "Sandbox %q doesn't exist or you don't have access to it", id)
}

// endedError converts an error to NotFound if the sandbox of the operation has
// just ended.
func endedError(id brig.ID, err error) error {
	switch brig.KindOf(err) {
	case brig.FailedPrecondition, brig.NotFound:
		return errNoSandbox(string(id))
	}
	return err
}

func (sb *sandboxes) get(w http.ResponseWriter, r *http.Request) error {
	s, err := sb.finder.find(r)
	if err != nil {
		return err
	}
	c := sb.connected(r.Context(), s)
	sb.write(w, r, http.StatusOK, detailedSandbox{
		listedSandbox: listed(s), EnvdAccessToken: c.EnvdAccessToken, Domain: c.Domain,
		AllowInternetAccess: hasInternet(s.Spec.Egress), Network: networkOf(s, sb.Internet), Lifecycle: lifecycleOf(s),
	})
	return nil
}

func (sb *sandboxes) remove(w http.ResponseWriter, r *http.Request) error {
	s, err := sb.finder.find(r)
	if err != nil {
		return err
	}
	if err := sb.end(r.Context(), s); err != nil {
		return err
	}
	writeEmpty(w)
	return nil
}

func (sb *sandboxes) end(ctx context.Context, s *brig.Sandbox) error {
	err := sb.Service.Remove(ctx, string(s.ID))
	if err != nil {
		return endedError(s.ID, err)
	}
	sb.finder.forget(string(s.ID))
	return nil
}
