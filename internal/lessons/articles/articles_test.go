// SPDX-License-Identifier: Apache-2.0

package articles

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/viplab/viplab/internal/lessons"
)

func TestPagesAreThoseOfTheLessons(t *testing.T) {
	for _, lang := range Languages {
		want, err := Page(lang)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("../../../docs/lessons", File(lang))
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s is not what its sources say: run \"make lessons\": %v", file, err)
		}
	}
}

// lesson returns a library of one lesson, whose step look prints something.
func lesson(t *testing.T, output string) library {
	t.Helper()
	l, err := lessons.Load(fstest.MapFS{
		"lesson.yaml":     {Data: []byte("steps: [{id: look, run: ls}]\n")},
		"en.md":           {Data: []byte("# A title\n\n{{step look}}\n")},
		"pod.yaml":        {Data: []byte("kind: Pod\nmetadata: {name: web}\nspec: {nodeName: n1}\n")},
		"output/look.txt": {Data: []byte(output)},
	}, "mine")
	if err != nil {
		t.Fatal(err)
	}
	return library{"mine": l}
}

// chain is a listing of an article.
const chain = `
Chain KUBE-SVC-AAAAAAAAAAAAAAAA (2 references)
 pkts bytes target     prot opt in     out     source               destination
    3   180 KUBE-SEP-BBBBBBBBBBBBBBBB  tcp  --  *      *       0.0.0.0/0            10.1.1.1         /* default/web: cluster IP */ tcp dpt:80
    0     0 KUBE-SEP-CCCCCCCCCCCCCCCC  all  --  *      *       0.0.0.0/0            0.0.0.0/0
`

// same is chain in a lab, and with another option of iptables.
const same = `
Chain KUBE-SVC-1111111111111111 (1 references)
target     prot opt source               destination
KUBE-SEP-2222222222222222  6  --  anywhere  10.96.0.1  /* default/web cluster IP */ tcp dpt:www
KUBE-SEP-3333333333333333  0  --  anywhere  anywhere
`

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		output string
		why    []Reason
		want   string // the signs of the rows, or a part of the error
	}{
		{same, nil, "===="},
		{strings.ReplaceAll(same, "3333333333333333", "2222222222222222"), nil, `"KUBE-SEP-2222222222222222" of the lab is`},
		{strings.Replace(same, "dpt:www", "dpt:81", 1), nil, "no reason for: KUBE-SEP-2222222222222222"},
		{strings.Replace(same, "dpt:www", "dpt:81", 1), []Reason{{Article: "dpt:80", Lab: "dpt:81"}}, "==a="},
		{same + "DROP all -- anywhere anywhere", nil, "lab: no reason for: DROP"},
		{same + "DROP all -- anywhere anywhere", []Reason{{Lab: "DROP"}}, "====a"},
		{same, []Reason{{Lab: "DROP"}}, "reason 1 explains nothing"},
		{strings.Split(same, "KUBE-SEP-3")[0], nil, "article: no reason for: KUBE-SEP-C"},
	} {
		e := Exhibit{Lines: chain, Lab: []Source{{Lesson: "mine", Step: "look"}}, Why: c.why}
		rows, err := e.compare(lesson(t, c.output))
		got := ""
		for _, r := range rows {
			got += r.sign()
		}
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

func TestPlaceholdersStandForTheSameThing(t *testing.T) {
	e := Exhibit{Lines: chain, Lab: []Source{{Lesson: "mine", Step: "look"}}}
	rows, err := e.compare(lesson(t, same))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.article != r.lab {
			t.Errorf("the article has %q, the lab %q", r.article, r.lab)
		}
	}
	if want := "KUBE-SEP-2 all -- 0.0.0.0/0 0.0.0.0/0"; rows[3].lab != want {
		t.Errorf("got %q, want %q", rows[3].lab, want)
	}
}

func TestUnordered(t *testing.T) {
	e := Exhibit{Unordered: true, Lines: "a 10.0.0.1\nb 10.0.0.2\n", Lab: []Source{{Lesson: "mine", Step: "look"}}}
	rows, err := e.compare(lesson(t, "b 10.9.0.2\na 10.9.0.1\n"))
	if err != nil || len(rows) != 2 || rows[0].article != "a IP1" || rows[1].lab != "b IP2" {
		t.Errorf("%+v, %v", rows, err)
	}
}

func TestManifest(t *testing.T) {
	e := Exhibit{Manifest: true, Lines: "metadata:\n  name: web\nkind: Pod\n", Lab: []Source{{Lesson: "mine", File: "pod.yaml"}},
		Unordered: true, Why: []Reason{{Lab: "nodeName = n1"}}}
	rows, err := e.compare(lesson(t, ""))
	if err != nil || len(rows) != 3 || rows[0].article != "Pod web: metadata.name = web" {
		t.Errorf("%+v, %v", rows, err)
	}
}

func TestDraw(t *testing.T) {
	got := draw([][]string{
		{
			`prerouting [-100] iptables-nft ip nat: -A PREROUTING -m comment --comment "portals" -j SERVICES => jump SERVICES`,
			`prerouting [-100] iptables-nft ip nat: -A SERVICES -d 10.0.0.1/32 -p tcp -m tcp --dport 80 -j SVC => jump SVC`,
			`prerouting [-100] iptables-nft ip nat: -A SVC -j MARK --set-xmark 0x4000/0x4000 => continue`,
			`prerouting [-100] iptables-nft ip nat: -A SVC -j DNAT --to-destination 10.1.0.1:80 => accept`,
			"device eth0 out: tcp",
		},
		{
			`prerouting [-100] iptables-nft ip nat: -A PREROUTING -j SERVICES => jump SERVICES`,
			`prerouting [-100] iptables-nft ip nat: -A SERVICES -m addrtype --dst-type LOCAL -j NODEPORTS => jump NODEPORTS`,
			`prerouting [-100] iptables-nft ip nat: -A SERVICES -d 10.0.0.1/32 -p tcp -m tcp --dport 80 -j SVC => jump SVC`,
			`prerouting [-100] iptables-nft ip nat: -A SVC -m mark ! --mark 0x1/0x1 -j RETURN => return`,
			`postrouting [100] iptables-nft ip nat: -A POSTROUTING -j MASQUERADE => accept`,
		},
	})
	want := `PREROUTING [-100], table nat
└─ SERVICES
   ├─ SVC   if -d 10.0.0.1/32 -p tcp --dport 80
   │  ├─ RETURN   if ! --mark 0x1/0x1
   │  ├─ MARK --set-xmark 0x4000/0x4000
   │  └─ DNAT --to-destination 10.1.0.1:80
   └─ NODEPORTS   if --dst-type LOCAL
POSTROUTING [100], table nat
└─ MASQUERADE
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestRowsOfADiagram(t *testing.T) {
	why := Words{"en": "so", "ko": "so"}
	for _, c := range []struct {
		row  Row
		want string
	}{
		{Row{Quote: "DNAT to 10.0.0.1:8080", At: "mine/look", Line: "DNAT"}, "="},
		{Row{Quote: "DNAT to 10.0.0.1:8080", At: "mine/look", Line: "SNAT"}, "mine/look has no line SNAT"},
		{Row{Quote: "SNAT", At: "mine/look", Line: "DNAT"}, "is not in the lab's line"},
		{Row{Quote: "SNAT", At: "mine/look", Line: "DNAT", Why: why}, "a"},
		{Row{Is: Words{"en": "an arrow"}}, "want a line of the lab, or a reason"},
		{Row{Is: Words{"en": "an arrow"}, Why: why}, "a"},
		{Row{Quote: "DNAT", At: "mine/gone", Line: "."}, `lesson mine has no step "gone"`},
		{Row{Quote: "DNAT", At: "other/look", Line: "."}, "there is no lesson other"},
	} {
		e := Exhibit{Rows: []Row{c.row}}
		rows, _, err := e.find(lesson(t, "-j DNAT to 10.9.0.9:9090\n"))
		got := rows[0].sign()
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}
