// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"errors"
	"net/netip"
	"os"
	osexec "os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/suite/spec"
)

func service(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

// wantError wants an error that holds every one of some texts.
func wantError(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Fatalf("got %v\nwant an error with %q", err, text)
		}
	}
	var fault *spec.HarnessError
	if errors.As(err, &fault) {
		t.Fatalf("a fault of the harness: %v", err)
	}
}

func TestAProgramThatObeys(t *testing.T) {
	checkLeaks(t)
	w := newWorld(t)
	instances := []*instance{w.start("n1", child("good")...), w.start("n2", child("good")...)}
	ctx := within(t, patience)
	applyAll := func() {
		t.Helper()
		var all sync.WaitGroup
		for _, i := range instances {
			all.Go(func() {
				if err := w.apply(ctx, i); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	for _, name := range []string{"a", "b", "c"} {
		must(t, w.Store().Apply(service(name)))
		applyAll()
	}
	before := w.Store().Snapshot().Revision
	applyAll()
	if after := w.Store().Snapshot().Revision; after != before {
		t.Errorf("to apply a state that is obeyed already changed the cluster: revision %d -> %d", before, after)
	}
	if n := len(w.Store().Snapshot().Services); n > 3+2*len(instances) {
		t.Errorf("%d Services are left: canaries are not taken away", n)
	}
	must(t, instances[0].node.Host.Run(osexec.CommandContext(ctx, "iptables-nft", "-t", "nat", "-N", "OWN")))
	var dump strings.Builder
	must(t, instances[0].Dump(ctx, &dump))
	for _, want := range []string{"runs\n", "Normal Node n2 Starting: a small proxier of n2\n", "# nft -a list ruleset\n",
		"# iptables-nft-save -c\n", ":OWN - [0:0]\n", "# no rules: ip6tables-nft-save -c, iptables-legacy-save -c"} {
		if !strings.Contains(dump.String(), want) {
			t.Errorf("the dump lacks %q:\n%s", want, &dump)
		}
	}
	var log strings.Builder
	must(t, instances[0].WriteLog(&log))
	if want := "small proxier of n1 is up\n"; !strings.Contains(log.String(), want) {
		t.Errorf("the log lacks %q:\n%s", want, &log)
	}
	for _, i := range instances {
		must(t, i.Stop(ctx))
	}
	if s := w.Store().Snapshot(); len(s.Services) != 3 || clusters[w.Store()] != nil {
		t.Errorf("after the end %d Services and cluster %v are left", len(s.Services), clusters[w.Store()])
	}
}

func TestAProgramThatCrashesAtItsStart(t *testing.T) {
	w := newWorld(t)
	i := w.start("n1", "sh", "-c", "echo cannot go on; exit 7")
	began := time.Now()
	ctx := within(t, patience)
	wantError(t, w.apply(ctx, i), "n1: mine", "ended with exit code 7 after", "cannot go on")
	wantError(t, w.apply(ctx, i), "exit code 7")
	if took := time.Since(began); took > machine.Limit(patience/4) {
		t.Errorf("the verdict took %s", took)
	}
	must(t, i.Stop(ctx))
}

func TestAProgramThatCrashesOnAnUpdate(t *testing.T) {
	w := newWorld(t)
	frail, good := w.start("n1", child("frail")...), w.start("n2", child("good")...)
	ctx := within(t, patience)
	must(t, w.apply(ctx, frail))
	must(t, w.Store().Apply(service("poison")))
	err := w.apply(ctx, frail)
	wantError(t, err, "n1: mine ended with exit code 3", "panic: poison")
	if !errors.As(err, new(*spec.EndedError)) {
		t.Errorf("the error is a %T, which does not say that the program has ended", err)
	}
	must(t, w.apply(ctx, good))
	must(t, frail.Stop(ctx))
	must(t, good.Stop(ctx))
}

func TestAProgramThatNeverSyncs(t *testing.T) {
	w := newWorld(t)
	idle, good := w.start("n1", "sleep", "infinity"), w.start("n2", child("good")...)
	wantError(t, w.apply(within(t, 2*time.Second), idle), "n1: mine never became ready: viplab's own Service ",
		" on n1 is ", "written nothing")
	ctx := within(t, patience)
	must(t, w.apply(ctx, good))
	must(t, idle.Stop(ctx))
	must(t, good.Stop(ctx))
}

// TestAProgramOfOneFamily: a program that serves IPv4 alone is given up long before one that serves nothing, and stays
// so when the engine tries again.
func TestAProgramOfOneFamily(t *testing.T) {
	w := newWorld(t)
	narrow := w.start("n1", child("narrow")...)
	ctx := within(t, patience)
	for range 2 {
		wantError(t, w.apply(ctx, narrow), "n1: mine never became ready: viplab's own Service [",
			"judge it with --ip 4", "the other family has answered for ")
	}
	must(t, narrow.Stop(ctx))
}

// TestAProgramOfTwoFamilies: a program that has served both families may take its time for one of them later.
func TestAProgramOfTwoFamilies(t *testing.T) {
	i := &instance{proxier: &proxier{}}
	i.halfReadyFor(true)
	i.half = i.half.Add(-time.Minute)
	if got := i.halfReadyFor(true); got < time.Minute {
		t.Errorf("it has served one family for a minute, not for %s", got)
	}
	i.proxier.proved.Store(true)
	if got := i.halfReadyFor(true); got != 0 {
		t.Errorf("it has served both families once, and is taken for one of a single family, for %s", got)
	}
}

// TestTheLimitOfAFirstRound: the first round of a new process may take as long as any other if the program is known to
// work. Only a program that has served nothing is given up early.
func TestTheLimitOfAFirstRound(t *testing.T) {
	early, usual := machine.Limit(readyLimit), machine.Limit(obeyLimit)
	synctest.Test(t, func(t *testing.T) {
		i := &instance{proxier: &proxier{}}
		lasts := func() time.Duration {
			ctx, cancel := i.inTime(t.Context())
			defer cancel()
			began := time.Now()
			<-ctx.Done()
			return time.Since(began)
		}
		if got := lasts(); got != early {
			t.Errorf("no process of the program has served a canary: the limit is %s, want %s", got, early)
		}
		i.proxier.proved.Store(true)
		if got := lasts(); got < usual {
			t.Errorf("the program has served canaries: the limit is %s, want %s, or more on a busy machine", got, usual)
		}
	})
}

// What an earlier program has left in the kernel answers for no canary of a later one.
func TestAProgramThatComesAfterAnother(t *testing.T) {
	w := newWorld(t)
	ctx := within(t, patience)
	served := map[netip.AddrPort]bool{}
	for range 2 {
		i := w.start("n1", child("good")...)
		must(t, w.apply(ctx, i))
		for _, g := range i.cluster.canaries.alive {
			for _, to := range g.targets {
				if served[to] {
					t.Errorf("canary %s was served by the program before", to)
				}
				served[to] = true
			}
		}
		must(t, i.Kill(ctx))
	}
}

func TestAProgramThatIsKilled(t *testing.T) {
	w := newWorld(t)
	i := w.start("n1", child("good")...)
	ctx := within(t, patience)
	must(t, w.apply(ctx, i))
	must(t, i.life.signal(unix.SIGKILL))
	<-i.life.done
	wantError(t, w.apply(ctx, i), "was ended by SIGKILL")
	must(t, i.Stop(ctx))
}

func TestAProgramThatFloodsItsLog(t *testing.T) {
	w := newWorld(t)
	i := w.start("n1", "sh", "-c", "echo first; yes flood | head -c 100000000; echo last; exit 1")
	ctx := within(t, patience)
	wantError(t, w.apply(ctx, i), "exit code 1", "flood\n", "last")
	if s, err := i.log.file.Stat(); err != nil || s.Size() > keepFirst+2*keepLast+100 {
		t.Errorf("the log: %v, %v", s, err)
	}
	if i.log.total < 100e6 {
		t.Errorf("%d bytes of output were taken", i.log.total)
	}
	var log strings.Builder
	must(t, i.WriteLog(&log))
	if text := log.String(); !strings.HasPrefix(text, "first\n") || !strings.HasSuffix(text, "last\n") ||
		log.Len() > keepFirst+2*keepLast+100 {
		t.Errorf("a log of %d bytes", log.Len())
	}
	must(t, i.Stop(ctx))
}

func TestAProgramThatDoesNotEnd(t *testing.T) {
	w := newWorld(t)
	i := w.start("n1", child("deaf")...)
	ctx := within(t, patience)
	must(t, w.apply(ctx, i))
	began := time.Now()
	wantError(t, i.Stop(ctx), "does not end on SIGTERM")
	if took := time.Since(began); took < grace || took > machine.Limit(patience/2) {
		t.Errorf("it took %s", took)
	}
	if !i.life.ended() {
		t.Error("it still runs")
	}
}

func TestAProgramThatIsNotThere(t *testing.T) {
	w := newWorld(t)
	p, err := New(Command{Name: "mine", Argv: []string{"/nowhere/proxy"}})
	must(t, err)
	var unusable *spec.UnusableError
	if err := p.Usable(t.Context()); !errors.As(err, &unusable) {
		t.Errorf("usable: %v", err)
	}
	_, err = p.Start(t.Context(), w.node("n1"))
	wantError(t, err, "n1: start mine", "no such file")
	if clusters[w.Store()] != nil {
		t.Error("it left its part of the cluster behind")
	}
}

func TestAConfigurationThatCannotBeTold(t *testing.T) {
	w := newWorld(t)
	p, err := New(Command{Name: "mine", Argv: []string{"true"}})
	must(t, err)
	node := w.node("n1")
	node.Config.MasqueradeAll = true
	var unusable *spec.UnusableError
	_, err = p.Start(t.Context(), node)
	if !errors.As(err, &unusable) {
		t.Errorf("start: %v", err)
	}
	wantError(t, err, "a way to tell it MasqueradeAll", "mention {{.MasqueradeAll}}")
}

// What a program does to /run stays its own.
func TestMountsAreTheNodesOwn(t *testing.T) {
	w := newWorld(t)
	for _, n := range []string{"n1", "n2"} {
		i := w.start(n, "sh", "-c", "test ! -e /run/mine && touch /run/mine /run/xtables.lock && ls /sys/class/net && exit 8")
		wantError(t, w.apply(within(t, patience), i), "exit code 8", "eth0")
		must(t, i.Stop(t.Context()))
	}
	if _, err := os.Stat("/run/mine"); !os.IsNotExist(err) {
		t.Errorf("/run/mine: %v", err)
	}
}

// A shell says so where it cannot set a limit.
func TestALimitOfFilesThatIsKept(t *testing.T) {
	w := newWorld(t)
	const more = "had=$(ulimit -n); ulimit -n 1000000000 2>&1 && echo believed; test $(ulimit -n) = $had || echo " +
		"changed; exit 8"
	for _, keep := range []bool{true, false} {
		i := w.place("n1", Command{Name: "mine", Argv: []string{"sh", "-c", more}, KeepFileLimit: keep})
		err := w.apply(within(t, patience), i)
		wantError(t, err, "exit code 8")
		if believed := strings.Contains(err.Error(), "believed"); believed != keep ||
			strings.Contains(err.Error(), "changed") {
			t.Errorf("keep %t: it was let believe: %t\n%v", keep, believed, err)
		}
		must(t, i.Stop(t.Context()))
	}
}

// TestOneFamilyIsNamed: the error about a program that serves one IP family says which, and what to do.
func TestOneFamilyIsNamed(t *testing.T) {
	err := &silentError{node: "n1", canary: netip.MustParseAddrPort("[fd00::1]:1025"), only: lab.V4}
	if text := err.Error(); !strings.HasSuffix(text, "it serves IPv4: if it serves no other family, judge it with --ip 4") {
		t.Error(text)
	}
	if err.only = 0; strings.Contains(err.Error(), "--ip") {
		t.Error(err)
	}
}
