package main

import (
	"net/url"
	"path/filepath"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/tool"
)

// toolsConfig is the part of the configuration about agents' tools.
type toolsConfig struct {
	// Image is what boxes are made from, unless a template is named.
	Image string `yaml:"image"`
	// Hosts are those to which tools may connect.
	Hosts []string `yaml:"hosts"`
	// Packages lets tools have packages that they ask for.
	Packages struct {
		// Hosts are those from which they are fetched; without any there are none.
		Hosts []string `yaml:"hosts"`
		// PyPI and NPM are addresses of other indexes.
		PyPI string `yaml:"pypi"`
		NPM  string `yaml:"npm"`
		// MaxSize bounds what all layers of packages take, MaxLayer one of them.
		MaxSize  size `yaml:"max_size"`
		MaxLayer size `yaml:"max_layer"`
	} `yaml:"packages"`
}

// The bounds of layers of packages, unless the configuration says otherwise.
const (
	defaultLayers = 10 * brig.GiB
	defaultLayer  = 2 * brig.GiB
)

// layersDir is where layers are, in the data folder.
const layersDir = "layers"

// options are what the engine is told of it.
func (c *toolsConfig) options(dir string) (engine.ToolOptions, error) {
	o := engine.ToolOptions{
		Image: c.Image, Egress: toHosts(c.Hosts), PackageEgress: toHosts(c.Packages.Hosts),
		Index: tool.Index{PyPI: c.Packages.PyPI, NPM: c.Packages.NPM},
	}
	for field, e := range map[string]brig.Egress{"tools.hosts": o.Egress, "tools.packages.hosts": o.PackageEgress} {
		if err := e.Check(); err != nil {
			return o, brig.Errorf(brig.InvalidConfig, "%s: %s", field, brig.AsError(err).Message).WithHint("for example packages.example.com")
		}
	}
	for field, text := range map[string]string{"tools.packages.pypi": c.Packages.PyPI, "tools.packages.npm": c.Packages.NPM} {
		if u, err := url.Parse(text); text != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
			return o, brig.Errorf(brig.InvalidConfig, "%s: it is no address of an index", field).WithHint("for example https://packages.example.com/simple")
		}
	}
	if len(c.Packages.Hosts) > 0 {
		o.Layers = &tool.Shelf{Dir: filepath.Join(dir, layersDir), Most: int64(c.Packages.MaxSize), Largest: int64(c.Packages.MaxLayer)}
		if o.Layers.Most == 0 {
			o.Layers.Most = defaultLayers
		}
		if o.Layers.Largest == 0 {
			o.Layers.Largest = defaultLayer
		}
	}
	return o, nil
}

// toHosts are rules that allow hosts, and nothing else.
func toHosts(hosts []string) (out brig.Egress) {
	for _, h := range hosts {
		out.Rules = append(out.Rules, brig.EgressRule{Host: h})
	}
	return out
}
