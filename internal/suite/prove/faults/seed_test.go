// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/suite/spec"
)

func TestMain(m *testing.M) {
	Shim()
	sandbox.Main(m)
}

// listener is a proxier that keeps the last applied state.
type listener struct {
	spec.Undisturbed

	told  *store.Snapshot
	store *store.Store
	err   error
}

func (*listener) Name() string                                { return "listener" }
func (*listener) Features() spec.FeatureSet                   { return spec.Features(spec.ClusterIP) }
func (*listener) Usable(context.Context, ...lab.Family) error { return nil }
func (l *listener) Start(_ context.Context, n spec.Node) (spec.Instance, error) {
	l.store = n.Store
	return l, nil
}
func (l *listener) Apply(_ context.Context, want *store.Snapshot) error {
	l.told = want
	return l.err
}
func (*listener) Dump(context.Context, io.Writer) error { return nil }
func (*listener) Stop(context.Context) error            { return nil }
func (*listener) Kill(context.Context) error            { return nil }
func (*listener) Cleanup(context.Context) error         { return nil }
func (*listener) Other() spec.Proxier                   { return nil }

// switching is a listener that has another mode.
type switching struct{ listener }

func (s *switching) Other() spec.Proxier { return &listener{} }

// The other mode of a proxier has the fault, too.
func TestTheOtherModeIsFaultyToo(t *testing.T) {
	seeding, err := Seed(t.Context(), Fault{Name: "harmless"}, &listener{}, &switching{})
	if err != nil {
		t.Fatal(err)
	}
	if other := seeding.Proxiers[0].Other(); other != nil {
		t.Errorf("a proxier without another mode has %v", other)
	}
	if _, faulty := seeding.Proxiers[1].Other().(*faultyProxier); !faulty {
		t.Error("the other mode is without the fault")
	}
}

// A proxier that ends because of a fault is not one that cannot work with it, if the fault says so.
func TestAFaultMayEndAProxier(t *testing.T) {
	state := clusterWithService(t)
	for ends, refused := range map[bool]int{true: 0, false: 1} {
		seeding, err := Seed(t.Context(), Fault{Name: "deadly", Ends: ends}, &listener{err: &spec.EndedError{Err: io.EOF}})
		if err != nil {
			t.Fatal(err)
		}
		in, err := seeding.Proxiers[0].Start(t.Context(), spec.Node{Store: state})
		if err != nil {
			t.Fatal(err)
		}
		if err := in.Apply(t.Context(), state.Snapshot()); !errors.Is(err, io.EOF) {
			t.Errorf("apply: %v", err)
		}
		if got := seeding.Refused(); len(got) != refused {
			t.Errorf("ends=%t: refused %v, want %d errors", ends, got, refused)
		}
	}
}

func clusterWithService(t *testing.T) *store.Store {
	t.Helper()
	s := store.New(store.Config{})
	err := s.Apply(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort,
			Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAProxierIsToldSomethingElse(t *testing.T) {
	f, err := Find("nodeport-off-by-one")
	if err != nil {
		t.Fatal(err)
	}
	inner := &listener{}
	seeding, err := Seed(t.Context(), f, inner)
	if err != nil {
		t.Fatal(err)
	}
	p := seeding.Proxiers[0]
	if p.Name() != "listener" || !p.Features()[spec.ClusterIP] {
		t.Errorf("the seeded proxier calls itself %s and claims %v", p.Name(), p.Features())
	}
	state := clusterWithService(t)
	in, err := p.Start(t.Context(), spec.Node{Store: state})
	if err != nil {
		t.Fatal(err)
	}
	if seeding.Touched() != 0 {
		t.Error("it counts what it has not touched")
	}
	if err := in.Apply(t.Context(), state.Snapshot()); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*store.Snapshot{"Apply": inner.told, "the store": inner.store.Snapshot()} {
		if got := s.Services[0].Spec.Ports[0].NodePort; got != 30081 {
			t.Errorf("%s tells NodePort %d", name, got)
		}
	}
	if state.Snapshot().Services[0].Spec.Ports[0].NodePort != 30080 {
		t.Error("the cluster itself has changed")
	}
	if seeding.Touched() != 1 {
		t.Errorf("touched %d objects, not 1", seeding.Touched())
	}
}

func TestWhatIsDoneBesideComesAfterwards(t *testing.T) {
	inner := &listener{}
	done := 0
	seeding, err := Seed(t.Context(), Fault{Node: func(context.Context, spec.Node, *store.Snapshot) error {
		if done++; inner.told == nil {
			t.Error("something is done to the node before the proxier is")
		}
		return nil
	}}, inner)
	if err != nil {
		t.Fatal(err)
	}
	store := clusterWithService(t)
	in, err := seeding.Proxiers[0].Start(t.Context(), spec.Node{Store: store})
	if err == nil {
		err = in.Apply(t.Context(), store.Snapshot())
	}
	if err != nil || done != 1 || seeding.Touched() != 1 || len(seeding.Refused()) != 0 {
		t.Errorf("%v; done %d times, touched %d, refused %v", err, done, seeding.Touched(), seeding.Refused())
	}
	inner.err = errors.New("no such chain")
	if err := in.Apply(t.Context(), store.Snapshot()); err == nil || done != 1 || len(seeding.Refused()) != 1 {
		t.Errorf("a proxier that fails: %v; done %d times, refused %v", err, done, seeding.Refused())
	}
}

// The programs that come after the shims are scripts here.
func TestAProgramGetsAnotherInput(t *testing.T) {
	tools := t.TempDir()
	script := "#!/bin/sh\necho \"$0 $*\"\ncat\n"
	for _, name := range []string{"iptables-nft-restore", "nft"} {
		if err := os.WriteFile(filepath.Join(tools, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range []string{faultVariable, folderVariable} {
		t.Setenv(v, "")
	}
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
	f, err := Find("no-masquerade")
	if err != nil {
		t.Fatal(err)
	}
	seeding, err := Seed(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Seed(t.Context(), f); err == nil {
		t.Error("a process takes a second fault")
	}
	const rules = "-A KUBE-POSTROUTING -m mark --mark 0x4000 -j MASQUERADE\n-A KUBE-FORWARD -j ACCEPT\n"
	for _, c := range []struct {
		name, arg, want string
		touched         int
	}{
		{"nft", "-f -", rules, 0},
		{"iptables-nft-restore", "--noflush", "-A KUBE-FORWARD -j ACCEPT\n", 1},
		{"iptables-nft-restore", "--noflush", "-A KUBE-FORWARD -j ACCEPT\n", 2},
	} {
		cmd := exec.CommandContext(t.Context(), c.name, strings.Fields(c.arg)...)
		cmd.Stdin = strings.NewReader(rules)
		got, err := cmd.CombinedOutput()
		if want := filepath.Join(tools, c.name) + " " + c.arg + "\n" + c.want; err != nil || string(got) != want {
			t.Errorf("%s gets %q, not %q: %v", c.name, got, want, err)
		}
		if seeding.Touched() != c.touched {
			t.Errorf("after %s: touched %d, not %d", c.name, seeding.Touched(), c.touched)
		}
	}

	// A proxier may keep a program running, and wait for its answers.
	running := exec.CommandContext(t.Context(), "iptables-nft-restore")
	input, err := running.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := running.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := running.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(output)
	lines.Scan() // the program's name
	for i := range 2 {
		if _, err := io.WriteString(input, rules); err != nil {
			t.Fatal(err)
		}
		if lines.Scan(); lines.Text() != "-A KUBE-FORWARD -j ACCEPT" || seeding.Touched() != 3+i {
			t.Errorf("a program that stays gets %q, and touched is %d, not %d", lines.Text(), seeding.Touched(), 3+i)
		}
	}
	if err := errors.Join(input.Close(), running.Wait()); err != nil {
		t.Error(err)
	}

	// A program in a container sees only the folder's own name.
	_, folder, _ := strings.Cut(os.Getenv(folderVariable), ":")
	unseen := "/proc/0/fd/0:" + folder
	cmd := exec.CommandContext(t.Context(), filepath.Join(folder, "iptables-nft-restore"))
	cmd.Env = append(os.Environ(), folderVariable+"="+unseen, "PATH="+unseen+":"+tools+":"+os.Getenv("PATH"))
	cmd.Stdin = strings.NewReader(rules)
	got, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(got), "MASQUERADE") || seeding.Touched() != 5 {
		t.Errorf("in a container: touched %d, not 5; %q, %v", seeding.Touched(), got, err)
	}
}
