// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/viplab/viplab/internal/suite/netpol/misreading"
	"github.com/viplab/viplab/lab"
)

// The tables of the file were not computed by the oracle, so each checks the other.
func TestStaticCasesAgreeWithTheOracle(t *testing.T) {
	cases, err := Static()
	if err != nil {
		t.Fatal(err)
	}
	if len(cases) != 163 {
		t.Errorf("%d cases, want 163", len(cases))
	}
	for _, c := range cases {
		if c.Blocked == nil || c.Given == "" || c.Source == "" || c.Priority == "" {
			t.Errorf("%s: lacks its table, given, source or priority", c.ID)
		}
	}
	names, err := NamesOf(cases)
	if err != nil {
		t.Fatal(err)
	}
	// All pods of a run have the further names of all cases, which must not change what a case means.
	for _, c := range cases {
		c.NamedPorts = names
		if err := c.check(); err != nil {
			t.Errorf("%s, with the names of all cases: %v", c.ID, err)
		}
	}
}

// The tables are the same if IPv6 ranges replace all IPv4 ranges. With both, they are the same except in the case about
// a range of the other family.
func TestTablesOfTheOtherFamily(t *testing.T) {
	cases, err := Static()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		for _, stack := range []lab.Stack{lab.IPv6, lab.Dual} {
			judged, err := c.Cluster(stack)
			if err != nil {
				t.Errorf("%s, %s: %v", c.ID, stack, err)
				continue
			}
			for _, f := range stack.Families() {
				if c.ID == "IPB-15" && stack == lab.Dual && f == lab.V6 {
					continue
				}
				if got := tableOf(judged, f); got != *c.Blocked {
					t.Errorf("%s, %s in %s: differs in %s", c.ID, f, stack, differences(c.Blocked, &got))
				}
			}
		}
	}
}

func TestTwins(t *testing.T) {
	for v4, want := range map[string]string{
		"0.0.0.0/0": "::/0", "10.244.0.0/16": "fd00:10:244::/48", "10.240.0.0/12": "fd00:10:240::/44",
		"10.244.2.0/24": "fd00:10:244:2::/64",
		"10.244.2.3/32": "fd00:10:244:2::3/128", "10.244.1.128/25": "fd00:10:244:1::80/121", "0.0.0.0/31": "::/127",
	} {
		if got := twin(netip.MustParsePrefix(v4)); got != netip.MustParsePrefix(want) {
			t.Errorf("%s: %s, want %s", v4, got, want)
		}
	}
}

// smoke is a selection of cases that together detect every misreading.
var smoke = []string{
	"STK-18", "PORT-38", "SEL-06", "DIR-03", "PORT-25", "IPB-08", "DIR-05", "DIR-06", "IPB-11", "DIR-14", "IPB-05",
	"IPB-14", "PEER-11", "PORT-18", "PORT-28", "PORT-31", "PORT-E10", "RUL-01", "RUL-02", "SEL-01", "SEL-03", "SEL-04",
	"SEL-09", "STK-07", "TGT-07", "TGT-08", "TGT-09",
}

func TestEveryMisreadingShowsInACase(t *testing.T) {
	cases, err := Static()
	if err != nil {
		t.Fatal(err)
	}
	kills := map[string]map[string]bool{} // by case
	readings := misreading.All()
	if len(readings) < 52 {
		t.Errorf("%d readings, want 52 at least", len(readings))
	}
	left := map[string]bool{}
	for _, r := range readings {
		left[r.Name] = true
		n := 0
		for _, c := range cases {
			right, err := c.Cluster(lab.IPv4)
			if err != nil {
				t.Fatal(err)
			}
			changed, err := c.changedBy(r, right)
			if err != nil {
				t.Fatalf("%s of %s: %v", r.Name, c.ID, err)
			}
			if changed {
				n++
				if kills[c.ID] == nil {
					kills[c.ID] = map[string]bool{}
				}
				kills[c.ID][r.Name] = true
			}
		}
		if n == 0 {
			t.Errorf("%s: no case tells it from the right reading", r.Name)
		}
		t.Logf("%-40s %d", r.Name, n)
	}
	for _, id := range smoke {
		for name := range kills[id] {
			delete(left, name)
		}
	}
	for name := range left {
		t.Errorf("the smoke cases do not tell %s", name)
	}
	t.Logf("a greedy choice: %q", greedy(kills))
}

// greedy repeatedly picks the case that kills the most of the remaining mutants.
func greedy(kills map[string]map[string]bool) []string {
	var chosen []string
	told := map[string]bool{}
	for {
		best, most := "", 0
		for id, names := range kills {
			n := 0
			for name := range names {
				if !told[name] {
					n++
				}
			}
			if n > most || n == most && n > 0 && id < best {
				best, most = id, n
			}
		}
		if best == "" {
			return chosen
		}
		chosen = append(chosen, best)
		for name := range kills[best] {
			told[name] = true
		}
	}
}

func TestMistakesInCases(t *testing.T) {
	valid := `{"cases": [{"id": "A", "policies": [%], "blocked": []}]}`
	for name, test := range map[string]struct{ text, want string }{
		"unknown field": {`{"cases": [{"id": "A", "blokced": []}]}`, `f.json: case A: unknown field "blokced"`},
		"wrong type": {`{"cases": [{"id": "A", "blockedNonSelf": "3"}]}`,
			`f.json: case A: blockedNonSelf: want int, got string`},
		"no id":    {`{"cases": [{}]}`, `f.json: cases\[0\]: id: is missing`},
		"id twice": {`{"cases": [{"id": "A"}, {"id": "A"}]}`, `f.json: case A: id: is given twice`},
		"unknown pod": {`{"cases": [{"id": "A", "blocked": ["x/d > x/a: *"]}]}`,
			`f.json: case A: blocked: "x/d > x/a: \*": no pod "x/d"`},
		"unknown port": {`{"cases": [{"id": "A", "blocked": ["x/b > x/a: 82/TCP"]}]}`, `no port "82/TCP"`},
		"to itself":    {`{"cases": [{"id": "A", "blocked": ["x/a > x/a: *"]}]}`, `a pod always reaches itself`},
		"wrong count": {`{"cases": [{"id": "A", "blocked": ["x/b > x/a: *"], "blockedNonSelf": 5}]}`,
			`blockedNonSelf: 5, but blocked names 4 cells`},
		"wrong table": {`{"cases": [{"id": "A", "blocked": ["x/b > x/a: 80/TCP"]}]}`,
			`the API says otherwise of x/b>x/a:80/TCP \(open\)`},
		"field of policy": {strings.Replace(valid, "%",
			`{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "p"}, "spec": {"ingres": []}}`, 1), `case A: policies\[0\]: .*spec.ingres`},
		"invalid policy": {strings.Replace(valid, "%",
			`{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "p"}, "spec": {"podSelector": {}, "policyTypes": ["Sideways"]}}`, 1), `case A: policy 1: .*spec.policyTypes\[0\]`},
		"unknown namespace": {strings.Replace(valid, "%",
			`{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "p", "namespace": "w"}, "spec": {"podSelector": {}}}`, 1), `metadata.namespace`},
		"other kind": {`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "w"}}`,
			`want NetworkPolicies alone`},
		"name of a port": {`{"cases": [{"id": "A", "extraNamedPorts": {"x/a": [["http", 80]]}}]}`,
			`extraNamedPorts: x/a: want \[NAME, NUMBER, PROTOCOL\]`},
		"no cases": {`{"cases": []}`, `f.json: no cases`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load("f.json", []byte(test.text))
			if err == nil || !regexp.MustCompile(test.want).MatchString(err.Error()) {
				t.Errorf("error %v, want one that matches %s", err, test.want)
			}
		})
	}
}

func TestManifest(t *testing.T) {
	cases, err := Load("dir/deny.yaml", []byte("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: "+
		"{name: p}\nspec: {podSelector: {matchLabels: {pod: a}}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	judged, err := cases[0].Cluster(lab.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	want := Table{}
	if err := want.block("* > x/a: *"); err != nil {
		t.Fatal(err)
	}
	if got := tableOf(judged, lab.V4); cases[0].ID != "deny" || got != want {
		t.Errorf("%s: differs in %s", cases[0].ID, differences(&want, &got))
	}
}
