package tool

import "maps"

// quiet is set for every tool, beneath all else: its output is for machines.
var quiet = map[string]string{
	"PYTHONWARNINGS": "ignore", "NO_COLOR": "1", "TERM": "dumb", "PYTHONUNBUFFERED": "1",
}

// Environment layers variables: each layer wins over those before it.
func Environment(layers ...map[string]string) map[string]string {
	out := maps.Clone(quiet)
	for _, l := range layers {
		maps.Copy(out, l)
	}
	return out
}
