package image

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/brig-run/brig"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// These are the limits of the values that are kept from an image's configuration.
const (
	maxLayers       = 500
	maxConfig       = 4 << 20 // bytes of a configuration or a manifest
	maxConfigLabels = 100
	maxConfigEnv    = 500
	maxConfigWords  = 200      // of an entrypoint or a command
	maxConfigBytes  = 64 << 10 // for each of them
)

// ReadConfig parses an OCI image configuration in JSON and keeps the supported
// values, within limits. The notes list the ignored values.
func ReadConfig(raw []byte) (brig.ImageConfig, []string, error) {
	_, c, notes, err := readConfig(raw)
	return c, notes, err
}

// readConfig parses a configuration and keeps the supported values. The notes
// list the ignored values.
func readConfig(raw []byte) (*v1.ConfigFile, brig.ImageConfig, []string, error) {
	var out brig.ImageConfig
	if len(raw) > maxConfig {
		return nil, out, nil, archiveError("its configuration is larger than %d bytes", maxConfig)
	}
	f, err := v1.ParseConfigFile(bytes.NewReader(raw))
	if err != nil {
		return nil, out, nil, archiveError("its configuration is damaged").Because(err)
	}
	if f.RootFS.Type != "layers" {
		return nil, out, nil, archiveError("its configuration names no layers: it is not an image that can run")
	}
	if n := len(f.RootFS.DiffIDs); n > maxLayers {
		return nil, out, nil, archiveError("it has %d layers, the most is %d", n, maxLayers)
	}
	if f.OS != "" && f.OS != "linux" {
		return nil, out, nil, archiveError("it is for %s and not for linux", quote(f.OS))
	}
	var notes []string
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	out.Env = keepEnv(f.Config.Env, note)
	out.Labels = keepLabels(f.Config.Labels, note)
	out.Entrypoint = keepWords("entrypoint", f.Config.Entrypoint, note)
	out.Command = keepWords("command", f.Config.Cmd, note)
	if dir := f.Config.WorkingDir; path.IsAbs(dir) && len(dir) <= maxPath && isClean(dir) && clip(dir) == dir {
		out.WorkingDir = path.Clean(dir)
	} else if dir != "" {
		note("working directory %s is not used: it is not an absolute path", quote(dir))
	}
	if f.Architecture != "" {
		out.Platform = fmt.Sprintf("%.80s", clip(platformOf(f).String()))
		if f.Architecture != thisPlatform().Architecture {
			note("it is for %s and this machine is %s: its programs do not run here", out.Platform, thisPlatform())
		}
	}
	return f, out, notes, nil
}

func platformOf(f *v1.ConfigFile) *v1.Platform {
	return &v1.Platform{OS: "linux", Architecture: f.Architecture, Variant: f.Variant}
}

// clip makes text from an image safe for a terminal.
func clip(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == utf8.RuneError || r == 0x7f {
			return '?'
		}
		return r
	}, s)
}

func isClean(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

// isLoaderVariable reports whether a variable could change how programs are loaded or how
// Brig's own programs behave.
func isLoaderVariable(key string) bool {
	return strings.HasPrefix(key, "LD_") || strings.HasPrefix(key, "BRIG_") ||
		strings.HasPrefix(key, "E2B_") || key == "GLIBC_TUNABLES"
}

func keepEnv(all []string, note func(string, ...any)) map[string]string {
	env, size, remaining := map[string]string{}, 0, 0
	var dropped []string
	for _, kv := range all {
		k, v, ok := strings.Cut(kv, "=")
		switch {
		case !ok || k == "" || !isClean(kv):
			remaining++
		case isLoaderVariable(k):
			if len(dropped) < 10 && len(k) <= 80 {
				dropped = append(dropped, clip(k))
			} else {
				remaining++
			}
		case len(env) >= maxConfigEnv || size+len(kv) > maxConfigBytes:
			remaining++
		default:
			env[k] = v
			size += len(kv)
		}
	}
	if len(dropped) > 0 {
		note("variables of the image that are not set: %s", strings.Join(dropped, ", "))
	}
	if remaining > 0 {
		note("%d variables of the image are not set: they are unfit, or too many", remaining)
	}
	if len(env) == 0 {
		return nil
	}
	return env
}

func keepLabels(all map[string]string, note func(string, ...any)) map[string]string {
	keys := make([]string, 0, len(all))
	for k, v := range all {
		if isClean(k) && isClean(v) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys) // for a deterministic selection
	labels, size := map[string]string{}, 0
	for _, k := range keys {
		n := len(k) + len(all[k])
		if len(labels) == maxConfigLabels || size+n > maxConfigBytes {
			continue
		}
		labels[k], size = all[k], size+n
	}
	if n := len(all) - len(labels); n > 0 {
		note("%d labels of the image are not kept", n)
	}
	if len(labels) == 0 {
		return nil
	}
	return labels
}

func keepWords(what string, words []string, note func(string, ...any)) []string {
	size := 0
	for _, w := range words {
		size += len(w)
		if !isClean(w) {
			size = maxConfigBytes + 1
		}
	}
	if len(words) > maxConfigWords || size > maxConfigBytes {
		note("the %s of the image is not kept: it is unfit, or too long", what)
		return nil
	}
	return words
}
