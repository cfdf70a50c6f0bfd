package main

import (
	"net/url"
	"path/filepath"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/tool"
)

// toolsConfig is the tools section of the configuration.
type toolsConfig struct {
	// Image is the image of the tools' sandboxes, unless a template is
	// specified.
	Image string `yaml:"image"`
	// Hosts lists the hosts to which tools may connect.
	Hosts []string `yaml:"hosts"`
	// Packages configures the packages that tools may request.
	Packages struct {
		// Hosts are the sources of packages. If the list is empty, packages are
		// disabled.
		Hosts []string `yaml:"hosts"`
		// PyPI and NPM are the URLs of package indexes that replace the public ones.
		PyPI string `yaml:"pypi"`
		NPM  string `yaml:"npm"`
		// MaxSize bounds the total size of all package layers, and MaxLayer
		// that of one layer.
		MaxSize  size `yaml:"max_size"`
		MaxLayer size `yaml:"max_layer"`
	} `yaml:"packages"`
}

// These are the default limits of package layers.
const (
	defaultLayers = 10 * brig.GiB
	defaultLayer  = 2 * brig.GiB
)

// layersDir is the directory of layers in the data folder.
const layersDir = "layers"

// options returns the engine's options for tools.
func (c *toolsConfig) options(dir string) (engine.ToolOptions, error) {
	o := engine.ToolOptions{
		Image: c.Image, Egress: allowHosts(c.Hosts), PackageEgress: allowHosts(c.Packages.Hosts),
		Index: tool.Index{PyPI: c.Packages.PyPI, NPM: c.Packages.NPM},
	}
	for field, e := range map[string]brig.Egress{"tools.hosts": o.Egress, "tools.packages.hosts": o.PackageEgress} {
		if err := e.Check(); err != nil {
			return o, brig.Errorf(brig.InvalidConfig, "%s: %s", field, brig.AsError(err).Message).WithHint("for example packages.example.com")
		}
	}
	for field, text := range map[string]string{"tools.packages.pypi": c.Packages.PyPI, "tools.packages.npm": c.Packages.NPM} {
		if u, err := url.Parse(text); text != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
			return o, brig.Errorf(brig.InvalidConfig, "%s: the value is not the URL of a package index", field).WithHint("for example https://packages.example.com/simple")
		}
	}
	if len(c.Packages.Hosts) > 0 {
		o.Layers = &tool.LayerCache{Dir: filepath.Join(dir, layersDir), MaxBytes: int64(c.Packages.MaxSize), MaxLayer: int64(c.Packages.MaxLayer)}
		if o.Layers.MaxBytes == 0 {
			o.Layers.MaxBytes = defaultLayers
		}
		if o.Layers.MaxLayer == 0 {
			o.Layers.MaxLayer = defaultLayer
		}
	}
	return o, nil
}

// allowHosts returns rules that allow only these hosts.
func allowHosts(hosts []string) (out brig.Egress) {
	for _, h := range hosts {
		out.Rules = append(out.Rules, brig.EgressRule{Host: h})
	}
	return out
}
