// Package local runs sandboxes as plain processes of the server's own host.
//
// The sandboxes are not isolated: they share the kernel and most of the files
// with all other processes of the host. The provider is for a developer's own
// programs and for hosts that are themselves sandboxes. The administrator must
// enable it explicitly. Namespaces and separate file layers prevent accidental
// interference between sandboxes, but not attacks.
package local

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest"
	"github.com/brig-run/brig/guest/wire"
)

// Name is the driver's name.
const Name = "local"

// Config is the administrator's configuration.
type Config struct {
	AcceptNoIsolation bool   `json:"accept_no_isolation" title:"I accept that nothing is isolated" doc:"Programs run on this machine, with its kernel and most of its files in reach. Must be on."`
	PythonBin         string `json:"python_bin" title:"Python" doc:"The interpreter of Python programs, for example of a virtual environment." placeholder:"/opt/venv/bin/python3"`
	NodeBin           string `json:"node_bin" title:"Node.js" doc:"The interpreter of JavaScript programs."`
	WorkDir           string `json:"work_dir" title:"Folder" doc:"Where sandboxes have their folders. Default is the server's own." placeholder:"/var/lib/brig/local"`
	Timeout           int    `json:"timeout" title:"Timeout" doc:"Seconds that a check of this provider may take." min:"1" max:"600"`
}

// Validate implements brig.ConfigRules.
func (c *Config) Validate() (invalid []brig.FieldError) {
	say := func(field, format string, args ...any) {
		invalid = append(invalid, brig.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	if !c.AcceptNoIsolation {
		say("accept_no_isolation", "this provider isolates nothing, and is off until that is accepted")
	}
	for field, program := range map[string]string{"python_bin": c.PythonBin, "node_bin": c.NodeBin} {
		if _, err := exec.LookPath(program); program == "" || err != nil {
			say(field, "there is no program %q", brig.Clip(program, 100))
		}
	}
	if c.WorkDir != "" && !filepath.IsAbs(c.WorkDir) {
		say("work_dir", "not an absolute path")
	}
	return invalid
}

// Driver returns the driver of this kind of provider.
func Driver() brig.Driver {
	return brig.NewDriver(brig.Driver{
		Name: Name, Title: "Local, without isolation",
		Doc:       "Plain processes on the server's own machine. Nothing is isolated: only for programs that you would run there yourself.",
		Tags:      []string{"local", "host", "minimal", "no-isolation"},
		Languages: []brig.Language{"python", "javascript", "typescript", "bash"},
	}, Config{PythonBin: "python3", NodeBin: "node", Timeout: 30}, openProvider)
}

// Provider runs sandboxes as processes. It implements brig.Provider.
type Provider struct {
	config         Config
	dir            string // contains the server's own data about each sandbox
	root           string // the supervisor's directory
	agent          string
	programs       map[string]string
	remoteHost     *guest.RemoteHost
	supportsUplink bool                // whether sandboxes can have a network link
	as             *syscall.Credential // account of the processes in tests; nil means the server's account
}

var (
	_ brig.Provider = (*Provider)(nil)
	_ brig.Checker  = (*Provider)(nil)
	_ brig.Imager   = (*Provider)(nil)
	_ io.Closer     = (*Provider)(nil)
)

func openProvider(_ context.Context, env brig.ProviderEnv, c *Config) (brig.Provider, error) {
	if invalid := c.Validate(); len(invalid) > 0 {
		return nil, guest.ConfigError(invalid).WithHint("set accept_no_isolation if programs need no isolation from this machine; otherwise use gvisor")
	}
	root := filepath.Join(env.Dir, "keeper")
	if c.WorkDir != "" {
		mark, err := guest.ServerMark(env.Dir)
		if err != nil {
			return nil, err
		}
		root = filepath.Join(c.WorkDir, "brig-"+mark) // other servers may use the same directory
	}
	p := &Provider{config: *c, dir: filepath.Join(env.Dir, "machines"), root: root, agent: env.Agent, programs: map[string]string{}, supportsUplink: hasTun()}
	for name, program := range map[string]string{"python3": c.PythonBin, "node": c.NodeBin} {
		if program == name {
			continue // programs look it up by name
		}
		full, err := exec.LookPath(program)
		if err == nil {
			full, err = filepath.Abs(full)
		}
		if err != nil {
			return nil, brig.Errorf(brig.InvalidConfig, "there is no program %q", program).Because(err)
		}
		p.programs[name] = full
	}
	p.remoteHost = &guest.RemoteHost{Open: p.connect, Label: "this machine"}
	return p, nil
}

// connect starts the process that connects to the supervisor.
func (p *Provider) connect(context.Context) (io.ReadWriteCloser, error) {
	cmd := exec.Command(p.agent, wire.ConnectWord, p.root)
	cmd.Args[0] = "brig-agent"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"} // do not inherit the server's environment
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: p.as}
	var stderr tail
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, brig.Errorf(brig.Unavailable, "the agent's program does not start").WithHint("mount the server's data folder without noexec").Because(err)
	}
	return &pipes{in, out, cmd}, nil
}

// pipes are the standard streams of a process. Close ends the process.
type pipes struct {
	io.WriteCloser
	io.Reader
	cmd *exec.Cmd
}

// Close implements io.Closer.
func (p *pipes) Close() error {
	err := p.WriteCloser.Close()
	_ = p.cmd.Process.Kill() // the process only relays data, so killing it loses nothing
	go func() { _ = p.cmd.Wait() }()
	return err
}

// tail keeps the last bytes that were written to it.
type tail struct{ b []byte }

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	t.b = t.b[max(0, len(t.b)-4096):]
	return len(p), nil
}

// Check implements brig.Checker.
func (p *Provider) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(p.config.Timeout)*time.Second)
	defer cancel()
	_, err := p.remoteHost.States(ctx)
	return err
}

// Close implements io.Closer.
func (p *Provider) Close() error { return p.remoteHost.Close() }

// Image implements brig.Imager.
func (p *Provider) Image(_ context.Context, ref string) (*brig.Image, error) {
	return guest.HostFiles(ref)
}

func (p *Provider) options(id brig.ID) (guest.InstanceOptions, error) {
	o, err := guest.NewInstanceOptions(id, p.dir, p.programs)
	o.NoUplink = !p.supportsUplink
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
	o, err := p.options(id)
	if err != nil {
		return nil, err
	}
	m, err := p.remoteHost.Create(ctx, o, spec, lease, wire.Make{Programs: p.programs})
	if err != nil {
		return nil, err
	}
	return &instance{SupervisedInstance: m}, nil
}

// Recover implements brig.Provider.
func (p *Provider) Recover(ctx context.Context, id brig.ID, _ brig.Handle) (brig.Instance, error) {
	o, err := p.options(id)
	if err != nil {
		return nil, brig.Errorf(brig.NotFound, "there is no such sandbox").Because(err)
	}
	m, err := p.remoteHost.Attach(ctx, o, time.Now().Add(time.Hour))
	if err != nil {
		return nil, err
	}
	return &instance{SupervisedInstance: m}, nil
}

// Sweep implements brig.Provider.
func (p *Provider) Sweep(ctx context.Context, known map[brig.ID]bool) (int, error) {
	return p.remoteHost.Sweep(ctx, p.dir, known)
}

// instance is one sandbox. It implements brig.Instance.
type instance struct{ *guest.SupervisedInstance }

var _ brig.Instance = (*instance)(nil)

// Handle implements brig.Instance.
func (i *instance) Handle() brig.Handle { return brig.Handle{Provider: Name, Version: 1} }

// Notes implements brig.Instance.
func (i *instance) Notes() []string {
	return append([]string{"NOT ISOLATED: this sandbox is a process of the server's own machine"}, i.SupervisedInstance.Notes()...)
}

// Enforced implements brig.Instance.
func (i *instance) Enforced(context.Context) (map[brig.Area]brig.Enforcement, error) {
	if i.Exit() != nil {
		return nil, brig.Errorf(brig.FailedPrecondition, "the machine has ended")
	}
	return guest.MarkObserved(guest.ProcessEnforcement("the server's own machine")), nil
}

// Capabilities implements brig.Provider.
func (p *Provider) Capabilities() brig.Capabilities {
	return brig.Capabilities{Name: Name, Isolation: "none", Uplinks: p.supportsUplink, Enforces: guest.ProcessEnforcement("the server's own machine")}
}

// hasTun reports whether the server's account can create network interfaces for
// sandboxes.
func hasTun() bool { return unix.Access("/dev/net/tun", unix.R_OK|unix.W_OK) == nil }
