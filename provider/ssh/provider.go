package ssh

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest"
	"github.com/brig-run/brig/guest/wire"
)

// Provider creates sandboxes on a host that it reaches by SSH. It implements
// brig.Provider.
type Provider struct {
	config         Config
	env            brig.ProviderEnv
	dialer         *dialer
	dir            string // on the remote host
	programs       map[string]string
	supportsUplink atomic.Bool // whether sandboxes can have a network link

	copying guest.Attempts[string] // serializes the copying of the agent

	mu          sync.Mutex // guards the fields below
	copiedAgent string     // the agent's path; empty if it must be checked again
	remoteHosts map[string]*guest.RemoteHost
}

var (
	_ brig.Provider = (*Provider)(nil)
	_ brig.Checker  = (*Provider)(nil)
	_ brig.Imager   = (*Provider)(nil)
	_ io.Closer     = (*Provider)(nil)
)

// openTimeout is the maximum response time of a host when its provider is
// opened. If the host does not respond, opening succeeds nevertheless, because
// the host may become available later. Check reports the failure.
const openTimeout = 5 * time.Second

func openProvider(ctx context.Context, env brig.ProviderEnv, c *Config) (*Provider, error) {
	if invalid := c.Validate(); len(invalid) > 0 {
		return nil, guest.ConfigError(invalid).WithHint("correct it: brig provider configure")
	}
	mark, err := guest.ServerMark(env.Dir)
	if err != nil {
		return nil, err
	}
	p := &Provider{
		config: *c, env: env, dir: path.Join(c.WorkDir, "brig-"+mark), remoteHosts: map[string]*guest.RemoteHost{},
		programs: map[string]string{},
	}
	p.dialer = &dialer{config: &p.config, dir: env.Dir, called: env.Called}
	for name, program := range map[string]string{"python3": c.PythonBin, "node": c.NodeBin} {
		if program != name {
			p.programs[name] = program
		}
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if _, err := p.copyAgent(ctx); err != nil && env.Log != nil {
		env.Log.Warn("the SSH host is not available yet", "provider", env.ID, "error", err)
	}
	return p, nil
}

// setupScript creates this server's directory, which must not belong to another
// user, and prints the host's architecture. The first %s is the directory, and
// the second is the agent's name.
const setupScript = `set -e; umask 077; d=%s; mkdir -p "$d"
[ -O "$d" ] && [ ! -L "$d" ] && [ "$(stat -c %%a "$d")" = 700 ] || { echo "$d is not this account's alone" >&2; exit 1; }
uname -s; uname -m
[ -r /dev/net/tun ] && [ -w /dev/net/tun ] && echo tun || echo none
sha256sum < "$d"/%s 2>/dev/null || echo missing`

// architectures maps the architectures of the agent to uname's names.
var architectures = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// copyAgent copies the agent to the host unless it exists there, and returns
// its path. Concurrent callers share one attempt, and each waits until its
// context ends.
func (p *Provider) copyAgent(ctx context.Context) (string, error) {
	if at := p.copied(); at != "" {
		return at, nil
	}
	// An attempt runs at most two scripts, each with its own timeout.
	at, err := p.copying.Do(ctx, 2*time.Duration(p.config.Timeout)*time.Second, p.copyAgentNow)
	if err != nil && ctx.Err() != nil {
		return "", p.dialer.failureError(context.Cause(ctx))
	}
	return at, err
}

func (p *Provider) copied() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.copiedAgent
}

// copyAgentNow makes one attempt for copyAgent.
func (p *Provider) copyAgentNow(ctx context.Context) (string, error) {
	if at := p.copied(); at != "" {
		return at, nil
	}
	program, err := os.ReadFile(p.env.Agent)
	if err != nil {
		return "", fmt.Errorf("read the agent: %w", err)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(program))
	name := "agent-" + sum[:16]
	output, err := p.dialer.run(ctx, fmt.Sprintf(setupScript, quote(p.dir), name), nil)
	if err != nil {
		return "", err
	}
	fields := strings.Fields(output)
	if len(fields) < 4 || fields[0] != "Linux" || fields[1] != architectures[runtime.GOARCH] {
		return "", brig.Errorf(brig.InvalidConfig, "%s is %s, and has to be Linux on %s as this server is", p.config.Host, brig.Clip(strings.Join(fields[:min(2, len(fields))], " on "), 60), architectures[runtime.GOARCH]).
			WithHint("use a machine of the server's own kind")
	}
	p.supportsUplink.Store(fields[2] == "tun")
	at := path.Join(p.dir, name)
	if fields[3] != sum {
		upload := fmt.Sprintf(`set -e; umask 077; t=%[1]s.$$; trap 'rm -f "$t"' EXIT; cat > "$t"; chmod 700 "$t"; sha256sum < "$t"; mv "$t" %[1]s`, quote(at))
		got, err := p.dialer.run(ctx, upload, bytes.NewReader(program))
		if err != nil {
			return "", err
		}
		if f := strings.Fields(got); len(f) == 0 || f[0] != sum {
			return "", brig.Errorf(brig.Unavailable, "the copy of the agent on %s is damaged", p.config.Host).WithHint("see that its disk is not full")
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.copiedAgent = at
	return at, nil
}

// forgetAgent makes the provider check for the agent again, because its file
// may have been deleted.
func (p *Provider) forgetAgent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.copiedAgent = ""
}

// supervisorDir returns the directory of the supervisor of this server's agent.
func supervisorDir(agent string) string {
	return path.Join(path.Dir(agent), strings.Replace(path.Base(agent), "agent-", "keeper-", 1))
}

// heartbeat is the maximum idle time of a stream. If no data arrives for three
// times this interval, the host assumes that its client has disconnected.
const heartbeat = 30 * time.Second

// remoteHost returns the RemoteHost for the supervisor in a directory of the
// host.
func (p *Provider) remoteHost(dir string) *guest.RemoteHost {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.remoteHosts[dir]
	if o == nil {
		o = &guest.RemoteHost{Label: p.config.Host, Heartbeat: heartbeat, Open: func(ctx context.Context) (io.ReadWriteCloser, error) {
			agent, err := p.copyAgent(ctx)
			if err != nil {
				return nil, err
			}
			return p.dialer.start(ctx, fmt.Sprintf("exec %s %s %s 90", quote(agent), wire.ConnectWord, quote(dir)))
		}, NoSupervisor: p.forgetAgent}
		p.remoteHosts[dir] = o
	}
	return o
}

// Check implements brig.Checker.
func (p *Provider) Check(ctx context.Context) error {
	agent, err := p.copyAgent(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(p.config.Timeout)*time.Second)
	defer cancel()
	_, err = p.remoteHost(supervisorDir(agent)).States(ctx)
	return err
}

// Close implements io.Closer.
func (p *Provider) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range p.remoteHosts {
		_ = o.Close() // it never fails
	}
	return p.dialer.close()
}

// Image implements brig.Imager.
func (p *Provider) Image(_ context.Context, ref string) (*brig.Image, error) {
	return guest.HostFiles(ref)
}

func (p *Provider) options(id brig.ID) (guest.InstanceOptions, error) {
	o, err := guest.NewInstanceOptions(id, filepath.Join(p.env.Dir, "machines"), p.programs)
	o.NoUplink = !p.supportsUplink.Load()
	return o, err
}

// Create implements brig.Provider.
func (p *Provider) Create(ctx context.Context, id brig.ID, spec brig.Spec, lease time.Time) (brig.Instance, error) {
	if spec.BuildRights {
		return nil, brig.NoBuildRights(Name)
	}
	if len(spec.Volumes) > 0 {
		return nil, brig.NoVolumes(Name)
	}
	agent, err := p.copyAgent(ctx)
	if err != nil {
		return nil, err
	}
	o, err := p.options(id)
	if err != nil {
		return nil, err
	}
	dir := supervisorDir(agent)
	m, err := p.remoteHost(dir).Create(ctx, o, spec, lease, wire.Make{Programs: p.programs})
	if err != nil {
		return nil, err
	}
	return &instance{m, p, dir}, nil
}

// handleState is the state in a handle.
type handleState struct{ Keeper string }

// Recover implements brig.Provider.
func (p *Provider) Recover(ctx context.Context, id brig.ID, h brig.Handle) (brig.Instance, error) {
	var v handleState
	if json.Unmarshal(h.State, &v) != nil || path.Dir(v.Keeper) != p.dir {
		return nil, brig.Errorf(brig.NotFound, "there is no such sandbox at %s", p.config.Host)
	}
	o, err := p.options(id)
	if err != nil {
		return nil, brig.Errorf(brig.NotFound, "there is no such sandbox at %s", p.config.Host).Because(err)
	}
	m, err := p.remoteHost(v.Keeper).Attach(ctx, o, time.Now().Add(time.Hour))
	if err != nil {
		return nil, err
	}
	return &instance{m, p, v.Keeper}, nil
}

// Sweep implements brig.Provider. Supervisors of other versions of the agent
// have separate directories.
func (p *Provider) Sweep(ctx context.Context, known map[brig.ID]bool) (int, error) {
	agent, err := p.copyAgent(ctx)
	if err != nil {
		return 0, err
	}
	output, err := p.dialer.run(ctx, "cd "+quote(p.dir)+" && ls -1", nil)
	if err != nil {
		return 0, err
	}
	n := 0
	var errs []error
	for _, name := range strings.Fields(output) {
		if !strings.HasPrefix(name, "keeper-") {
			continue
		}
		local := "" // only the current supervisor's instances have local data
		if path.Join(p.dir, name) == supervisorDir(agent) {
			local = filepath.Join(p.env.Dir, "machines")
		}
		swept, err := p.remoteHost(path.Join(p.dir, name)).Sweep(ctx, local, known)
		n += swept
		errs = append(errs, err)
	}
	return n, errors.Join(errs...)
}

// instance is one sandbox. It implements brig.Instance.
type instance struct {
	*guest.SupervisedInstance
	p             *Provider
	supervisorDir string
}

var _ brig.Instance = (*instance)(nil)

// Handle implements brig.Instance.
func (i *instance) Handle() brig.Handle {
	b, err := json.Marshal(handleState{i.supervisorDir})
	if err != nil {
		b = nil // strings always marshal
	}
	return brig.Handle{Provider: Name, Version: 1, State: b}
}

// Notes implements brig.Instance.
func (i *instance) Notes() []string {
	return append([]string{"isolation: this sandbox is a process of " + i.p.config.Host + ", beside that machine's others"}, i.SupervisedInstance.Notes()...)
}

// Enforced implements brig.Instance.
func (i *instance) Enforced(context.Context) (map[brig.Area]brig.Enforcement, error) {
	if i.Exit() != nil {
		return nil, brig.Errorf(brig.FailedPrecondition, "the machine has ended")
	}
	return guest.MarkObserved(i.p.enforces()), nil
}

func (p *Provider) enforces() map[brig.Area]brig.Enforcement {
	return guest.ProcessEnforcement("the machine " + p.config.Host)
}

// Capabilities implements brig.Provider.
func (p *Provider) Capabilities() brig.Capabilities {
	return brig.Capabilities{Name: Name, Isolation: "none", Uplinks: p.supportsUplink.Load(), Enforces: p.enforces()}
}
