package brig_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

func TestRoutingPlan(t *testing.T) {
	cannot := brig.Errorf(brig.FailedPrecondition, "it does not enforce egress")
	home := brig.Option{ID: "home", Terms: brig.Terms{Region: "here"}, Price: 0.001}
	cloud := brig.Option{ID: "cloud", Terms: brig.Terms{Region: "eu"}, Price: 0.02}
	cheap := brig.Option{ID: "cheap", Terms: brig.Terms{Region: "us"}, Price: 0.00001}
	weak := brig.Option{ID: "weak", Terms: brig.Terms{Region: "here"}, Named: true}
	down, full, unfit := home, home, home
	down.Down, full.Full, unfit.Unfit = true, true, cannot
	cloudFull, cloudUnfit := cloud, cloud
	cloudFull.Full, cloudUnfit.Unfit = true, cannot

	for name, c := range map[string]struct {
		routing brig.Routing
		roll    float64
		options []brig.Option
		want    string
	}{
		"active alone":            {brig.Routing{}, 0, []brig.Option{home, cloud}, "home (active)"},
		"order":                   {brig.Routing{Order: []string{"cloud", "home"}}, 0, []brig.Option{home, cloud}, "cloud (first of the order), home (fallback)"},
		"first is down":           {brig.Routing{Order: []string{"home", "cloud"}}, 0, []brig.Option{down, cloud}, "cloud (fallback: home is unavailable), home (first of the order)"},
		"only one, down":          {brig.Routing{}, 0, []brig.Option{down}, "home (active)"},
		"first is unfit":          {brig.Routing{Order: []string{"home", "cloud"}}, 0, []brig.Option{unfit, cloud}, "cloud (first of the order)"},
		"all unfit":               {brig.Routing{Order: []string{"home", "cloud"}}, 0, []brig.Option{unfit, cloudUnfit}, "SB015 it does not enforce egress"},
		"unknown":                 {brig.Routing{Order: []string{"gone"}}, 0, []brig.Option{home}, `SB015 the provider "gone" is not configured`},
		"room, no overflow":       {brig.Routing{Overflow: []string{"cloud"}}, 0, []brig.Option{home, cloud}, "home (active), cloud (fallback)"},
		"full, overflow":          {brig.Routing{Overflow: []string{"cloud"}}, 0, []brig.Option{full, cloud}, "cloud (overflow: home is full), home (active)"},
		"full, overflow is not":   {brig.Routing{Overflow: []string{"cloud"}}, 0, []brig.Option{full, cloudFull}, "home (active), cloud (overflow: home is full)"},
		"overflow before others":  {brig.Routing{Order: []string{"home", "cheap"}, Overflow: []string{"cloud"}}, 0, []brig.Option{full, cloud, cheap}, "cloud (overflow: home is full), cheap (overflow: home is full), home (first of the order)"},
		"cheapest":                {brig.Routing{Prefer: brig.PreferCheapest}, 0, []brig.Option{home, cloud, cheap, weak}, "cheap (cheapest), home (fallback), cloud (fallback)"},
		"cheapest of some":        {brig.Routing{Prefer: brig.PreferCheapest, Order: []string{"cloud", "home", "weak"}}, 0, []brig.Option{home, cloud, cheap, weak}, "weak (cheapest), home (fallback), cloud (fallback)"},
		"cheapest that fits":      {brig.Routing{Prefer: brig.PreferCheapest}, 0, []brig.Option{unfit, cloud}, "cloud (cheapest)"},
		"region":                  {brig.Routing{Prefer: brig.PreferRegion, Regions: []string{"eu", "us"}}, 0, []brig.Option{home, cloud, cheap}, "cloud (region), cheap (fallback), home (fallback)"},
		"split low":               {brig.Routing{Split: map[string]int{"cloud": 1, "home": 3}}, 0.24, []brig.Option{home, cloud}, "cloud (split), home (fallback)"},
		"split high":              {brig.Routing{Split: map[string]int{"cloud": 1, "home": 3}}, 0.26, []brig.Option{home, cloud}, "home (split)"},
		"split down":              {brig.Routing{Split: map[string]int{"home": 1}, Order: []string{"cloud"}}, 0, []brig.Option{down, cloud}, "cloud (fallback: home is unavailable), home (split)"},
		"two attempts":            {brig.Routing{Order: []string{"home", "cloud", "cheap"}, Attempts: 2}, 0, []brig.Option{home, cloud, cheap}, "home (first of the order), cloud (fallback)"},
		"three at most":           {brig.Routing{Order: []string{"weak", "home", "cloud", "cheap"}}, 0, []brig.Option{home, cloud, cheap, weak}, "weak (first of the order), home (fallback), cloud (fallback)"},
		"asked for":               {brig.Routing{Order: []string{"home"}}.With(brig.Placement{Provider: "cloud"}), 0, []brig.Option{home, cloud}, "cloud (asked for), home (fallback)"},
		"asked for, nothing else": {brig.Routing{Order: []string{"home"}, Overflow: []string{"cheap"}}.With(brig.Placement{Provider: "cloud", Only: true}), 0, []brig.Option{home, cloud, cheap}, "cloud (asked for)"},
		"asked for a region":      {brig.Routing{}.With(brig.Placement{Regions: []string{"us"}}), 0, []brig.Option{home, cloud, cheap}, "cheap (region), home (fallback), cloud (fallback)"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			choices, err := c.routing.Plan("home", c.roll, c.options)
			var list []string
			for _, c := range choices {
				list = append(list, fmt.Sprintf("%s (%s)", c.Provider, c.Reason))
			}
			if got = strings.Join(list, ", "); err != nil {
				got = brig.AsError(err).Kind.Code() + " " + brig.AsError(err).Message
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
	if _, err := (brig.Routing{}).Plan("", 0, nil); brig.KindOf(err) != brig.NotInitialized {
		t.Errorf("nothing configured: %v", err)
	}
}

func TestSplitFollowsWeights(t *testing.T) {
	r := brig.Routing{Split: map[string]int{"a": 1, "b": 3}}
	counts := map[string]int{}
	for i := range 1000 {
		choices, err := r.Plan("", float64(i)/1000, []brig.Option{{ID: "a"}, {ID: "b"}})
		if err != nil {
			t.Fatal(err)
		}
		counts[choices[0].Provider]++
	}
	if counts["a"] != 250 || counts["b"] != 750 {
		t.Errorf("got %v", counts)
	}
}

func TestRoutingCheck(t *testing.T) {
	for name, c := range map[string]struct {
		routing brig.Routing
		field   string
	}{
		"fits":         {brig.Routing{Order: []string{"gvisor", "e2b@eu"}, Split: map[string]int{"e2b": 1}, Attempts: 3}, ""},
		"id":           {brig.Routing{Order: []string{"home", "../x"}}, "routing.order[1]"},
		"overflow":     {brig.Routing{Overflow: []string{"../x"}}, "routing.overflow[0]"},
		"split":        {brig.Routing{Split: map[string]int{"../x": 1}}, "routing.split.../x"},
		"weight":       {brig.Routing{Split: map[string]int{"e2b": 0}}, "routing.split.e2b"},
		"attempts":     {brig.Routing{Attempts: 4}, "routing.attempts"},
		"preference":   {brig.Routing{Prefer: "best"}, "routing.prefer"},
		"region alone": {brig.Routing{Prefer: brig.PreferRegion}, "routing.prefer"},
	} {
		if err := c.routing.Check("routing"); (err == nil) != (c.field == "") || err != nil && brig.AsError(err).Field != c.field {
			t.Errorf("%s: %v", name, err)
		}
	}
}
