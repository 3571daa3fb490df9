// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/proxiers"
	"github.com/viplab/viplab/scenarios"
	"github.com/viplab/viplab/suite/expect"
	"github.com/viplab/viplab/suite/spec"
)

// The kinds of clusters to run in. Each flag takes a comma-separated list; the suite runs in every combination.
var (
	proxierNames = flag.String("viplab.proxier", "iptables,iptables-legacy,nftables,userspace,ipvs",
		"proxiers to judge, as far as they can run here")
	stacks      = flag.String("viplab.ip", "4,6,dual", "IP families of the clusters")
	podNetworks = flag.String("viplab.pods", "bridge,routed", "pod networks of the clusters")
	overlay     = flag.String("viplab.overlay", "auto", "overlay of the clusters")
	focus       = flag.String("viplab.focus", "", "run only scenarios whose id matches")
	all         = flag.Bool("viplab.all", false,
		"run every scenario in every kind of cluster, not only those of priority P0 in all but one")
	out = flag.String("viplab.out", filepath.Join(os.TempDir(), "viplab-out"),
		"folder for what failures leave behind")
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// TestConformance judges the built-in proxiers in every kind of cluster.
func TestConformance(t *testing.T) {
	parts, err := conformanceParts()
	if err != nil {
		t.Fatal(err)
	}
	config, reporter := ginkgo.GinkgoConfiguration()
	reporter.Succinct = true
	reporter.NoColor = reporter.NoColor || !term.IsTerminal(int(os.Stdout.Fd()))
	// On an interrupt Ginkgo ends its specs, and the engine has to end too.
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := runSpecs(ctx, t, "viplab conformance", parts, config, reporter); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, p := range parts {
		where := cmp.Or(p.run.Note(), p.title+" nothing ran")
		fmt.Println(where + ": " + countVerdicts(p.run.Results()))
		for _, r := range p.run.Results() {
			if r.Verdict != spec.Skip {
				ran++
			}
			// Failures are printed again after Ginkgo's long report, because readers look at the last lines first.
			if r.Verdict == spec.Fail || r.Verdict == spec.Broken {
				t.Errorf("%s: %s on %s %s: %s", where, r.Scenario.ID, r.Proxier, r.Verdict, r.Reason)
			}
		}
		if err := p.run.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	if ran == 0 {
		t.Error("nothing ran: nothing is proved")
	}
}

func conformanceParts() ([]*part, error) {
	judged, err := proxiers.Find(strings.Split(*proxierNames, ",")...)
	if err != nil {
		return nil, err
	}
	how, err := lab.ParseOverlay(*overlay)
	if err != nil {
		return nil, err
	}
	matching, err := regexp.Compile(*focus)
	if err != nil {
		return nil, err
	}
	catalogue, err := scenarios.All()
	if err != nil {
		return nil, err
	}
	var parts []*part
	for _, pods := range strings.Split(*podNetworks, ",") {
		network, err := lab.ParsePodNetwork(pods)
		if err != nil {
			return nil, err
		}
		for _, ip := range strings.Split(*stacks, ",") {
			stack, err := lab.ParseStack(ip)
			if err != nil {
				return nil, err
			}
			known, err := knownDeviations(judged, catalogue, map[string]string{"ip": ip, "pods": pods, "overlay": *overlay})
			if err != nil {
				return nil, err
			}
			parts = append(parts, &part{
				title: fmt.Sprintf("%s pods, ip %s,", network, stack),
				options: engine.Options{
					Proxiers: judged, Scenarios: scenariosFor(catalogue, stack, network), Focus: matching, Expect: known,
					Stack: stack, PodNetwork: network, Overlay: how,
					Out: filepath.Join(*out, fmt.Sprintf("%s-%s", network, stack)),
				},
			})
		}
	}
	known, err := knownDeviations(judged, catalogue, map[string]string{
		"ip": lab.Dual.String(), "pods": lab.Routed.String(), "overlay": *overlay,
	})
	if err != nil {
		return nil, err
	}
	return append(parts, policyParts(catalogue, judged, known, how, matching)...), nil
}

// knownDeviations returns what comes with viplab about the proxiers in a cluster of these settings.
func knownDeviations(
	judged []spec.Proxier, catalogue []spec.Scenario, settings map[string]string,
) (map[string]*expect.Known, error) {
	var ids []string
	for _, s := range catalogue {
		ids = append(ids, s.ID)
	}
	known := map[string]*expect.Known{}
	for _, p := range judged {
		file, err := expect.Shipped(p.Name())
		if err != nil {
			return nil, err
		}
		if known[p.Name()], err = file.For(expect.Run{With: settings}, ids); err != nil {
			return nil, err
		}
	}
	return known, nil
}

// policyParts judge each enforcer of network policies beside every proxier, in dual-stack clusters with routed pods,
// which all enforcers support. Beside the first proxier all scenarios run: an enforcer must not change what they see.
// Beside the others those of policies run that share a cluster or need a feature of the proxier.
func policyParts(
	catalogue []spec.Scenario, beside []spec.Proxier, known map[string]*expect.Known, how lab.Overlay,
	matching *regexp.Regexp,
) []*part {
	if !strings.Contains(*podNetworks, lab.Routed.String()) || !strings.Contains(*stacks, lab.Dual.String()) {
		return nil
	}
	policies := slices.DeleteFunc(slices.Clone(catalogue), func(s spec.Scenario) bool {
		return !slices.Contains(s.Needs, spec.NetworkPolicy) || s.Cluster != nil && len(s.Needs) == 1
	})
	var parts []*part
	for _, e := range proxiers.Enforcers() {
		for i, p := range beside {
			judge := policies
			if i == 0 {
				judge = catalogue
			}
			if !slices.ContainsFunc(judge, func(s spec.Scenario) bool { return matching.MatchString(s.ID) }) {
				continue
			}
			parts = append(parts, &part{
				title: fmt.Sprintf("%s beside %s,", e.Name(), p.Name()),
				options: engine.Options{
					Proxiers: []spec.Proxier{p}, Enforcer: e, Scenarios: judge, Focus: matching, Expect: known,
					Stack: lab.Dual, PodNetwork: lab.Routed, Overlay: how,
					Out: filepath.Join(*out, e.Name()),
				},
			})
		}
	}
	return parts
}

// scenariosFor returns the scenarios to run in a kind of cluster: all with both families and bridges, and the most
// important ones in the other kinds, since few scenarios depend on them.
func scenariosFor(catalogue []spec.Scenario, stack lab.Stack, pods lab.PodNetwork) []spec.Scenario {
	if *all || stack == lab.Dual && pods == lab.Bridge {
		return catalogue
	}
	return slices.DeleteFunc(slices.Clone(catalogue), func(s spec.Scenario) bool { return s.Priority != spec.P0 })
}

// countVerdicts summarizes the verdicts: "57 passed, 0 failed, 2 skipped, 0 broken".
func countVerdicts(results []spec.Result) string {
	n := map[spec.Verdict]int{}
	for _, r := range results {
		n[r.Verdict]++
	}
	return fmt.Sprintf("%d passed, %d known, %d failed, %d skipped, %d broken", n[spec.Pass], n[spec.Known],
		n[spec.Fail], n[spec.Skip], n[spec.Broken])
}
