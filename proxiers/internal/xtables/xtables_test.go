package xtables

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

func TestScript(t *testing.T) {
	tx := &Transaction{Table: NAT}
	tx.Write("A", []Rule{NewRule(Comment("two words"), Return), NewRule(Comment(`a "quoted" \ word`), Jump("B"))})
	tx.Empty("B")
	tx.Insert("OUTPUT", NewRule(Jump("A")))
	tx.Remove("OUTPUT", NewRule(Jump("C")))
	tx.Delete("D")
	tx.Delete("C")
	want := `*nat
:A - [0:0]
:B - [0:0]
:D - [0:0]
:C - [0:0]
-A A -m comment --comment "two words" -j RETURN
-A A -m comment --comment "a \"quoted\" \\ word" -j B
-I OUTPUT -j A
-D OUTPUT -j C
-X C
-X D
COMMIT
`
	if got := string(Script(&Transaction{Table: Filter}, tx)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTarget(t *testing.T) {
	for rule, want := range map[Rule]string{
		`-d 10.0.0.1/32 -j KUBE-SVC-1`:                  "KUBE-SVC-1",
		`-m comment --comment "-j NOT" -j YES`:          "YES",
		`-m comment --comment "a \"-j NOT" -g YES -x y`: "YES",
		`-m comment --comment count`:                    "",
		`-j`:                                            "",
		``:                                              "",
	} {
		if got := rule.Target(); got != want {
			t.Errorf("%s: got %q, want %q", rule, got, want)
		}
	}
}

func TestRestoreAndSave(t *testing.T) {
	for _, b := range []Backend{NFTables, Legacy} {
		for _, f := range []lab.Family{lab.V4, lab.V6} {
			t.Run(string(b)+" "+f.String(), func(t *testing.T) {
				ns, err := netns.New("n1")
				if err != nil {
					t.Fatal(err)
				}
				defer ns.Close()
				p, err := Find(ns, b, f, filepath.Join(t.TempDir(), "lock"))
				if err != nil {
					t.Skip(err)
				}
				tx := &Transaction{Table: Filter}
				tx.Write("MINE", []Rule{NewRule(Comment("one two"), Accept)})
				tx.Insert("INPUT", NewRule(Jump("MINE")))
				if err := p.Restore(t.Context(), tx); err != nil {
					t.Fatal(err)
				}
				saved, err := p.Save(t.Context(), Filter)
				if err != nil {
					t.Fatal(err)
				}
				if got := saved.Chains["MINE"]; !slices.Equal(got, []Rule{`-m comment --comment "one two" -j ACCEPT`}) {
					t.Errorf("MINE: got %q", got)
				}
				if got := saved.Jumps("INPUT", "MINE"); len(got) != 1 {
					t.Errorf("jumps from INPUT: got %q", got)
				}

				bad := &Transaction{Table: Filter}
				bad.Write("MINE", nil)
				bad.Insert("INPUT", "--bogus")
				err = p.Restore(t.Context(), bad)
				if err == nil || !strings.Contains(err.Error(), "(line 3: -I INPUT --bogus)") {
					t.Errorf("a rule that makes no sense: got error %v, want one that quotes the line", err)
				}
				saved, err = p.Save(t.Context(), Filter)
				if err != nil || len(saved.Chains["MINE"]) != 1 {
					t.Errorf("after a transaction that failed: got %q (%v), want nothing changed", saved.Chains["MINE"], err)
				}
			})
		}
	}
}

func TestMissingProgram(t *testing.T) {
	_, err := Find(nil, "no-such-backend", lab.V4, "")
	var missing *MissingError
	if !errors.As(err, &missing) || missing.Program != "iptables-no-such-backend-save" {
		t.Errorf("got %v", err)
	}
}

// TestShortPath: the programs live in /usr/sbin, which is not on everybody's PATH.
func TestShortPath(t *testing.T) {
	t.Setenv("PATH", "/usr/bin")
	if _, err := Find(nil, NFTables, lab.V6, ""); err != nil {
		t.Error(err)
	}
}
