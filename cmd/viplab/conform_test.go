// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/lab/hosttest"
	"github.com/viplab/viplab/internal/live"
	"github.com/viplab/viplab/internal/release"
	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/scenarios"
)

// commandVariable makes the test binary the command itself.
const commandVariable = "VIPLAB_TEST_COMMAND"

// The tests run inside a sandbox, which is the machine to the commands that they start.
func TestMain(m *testing.M) {
	if os.Getenv(commandVariable) != "" {
		main()
	}
	kubectl, noKubectl = release.Kubectl(context.Background(), release.Default, os.Stderr) // inside, there is no network
	noAgnhost = live.Agnhost.Build(context.Background(), os.Stderr)
	sandbox.Main(m)
}

// viplab is the command with arguments.
func viplab(t *testing.T, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), commandVariable+"=1")
	return cmd
}

// outcome runs a command to its end.
func outcome(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	cmd := viplab(t, args...)
	cmd.Stdout, cmd.Stderr = &out, &err
	cmd.Run()
	return cmd.ProcessState.ExitCode(), out.String(), err.String()
}

// refused wants a command line (its words have no blanks) to be refused at once, for all that is wrong with it.
func refused(t *testing.T, line string, reasons ...string) {
	t.Helper()
	code, _, stderr := outcome(t, strings.Fields(line)...)
	if code != 2 {
		t.Errorf("viplab %s: exit code %d, want 2", line, code)
	}
	for _, want := range reasons {
		if !strings.Contains(stderr, want) {
			t.Errorf("viplab %s: the error lacks %q:\n%s", line, want, stderr)
		}
	}
}

func TestConformPrintsAMatrixAndLeavesAReport(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	code, stdout, stderr := outcome(t, "conform", "--focus", "^nodeport-(every-node|allocation-rules)$", "--proxier",
		"iptables,none", "--out", folder)
	if code != 1 {
		t.Errorf("exit code %d, want 1: none fails a scenario\n%s%s", code, stdout, stderr)
	}
	for _, want := range []string{"nodeport-every-node", "✗", "client -> n1:nodePort(web:80)/tcp v4+v6",
		"none        fail: 1 passed, 1 failed", "iptables"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the output lacks %q:\n%s", want, stdout)
		}
	}
	data, err := os.ReadFile(filepath.Join(folder, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r report.Report
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	verdicts := map[string]string{}
	for _, p := range r.Proxiers {
		verdicts[p.Name] = p.Verdict
	}
	if verdicts["iptables"] != "pass" || verdicts["none"] != "fail" || r.Suite.Scenarios != 2 {
		t.Errorf("report: %s", data)
	}
	for _, x := range r.Results {
		for _, f := range x.Files {
			if _, err := os.Stat(filepath.Join(folder, f)); err != nil {
				t.Errorf("the report names a file that is not there: %v", err)
			}
		}
	}
	xml, err := os.ReadFile(filepath.Join(folder, "junit.xml"))
	if err != nil || !bytes.Contains(xml, []byte(`<testcase name="nodeport-every-node" classname="none.nodeport"`)) {
		t.Errorf("junit.xml: %v\n%s", err, xml)
	}
}

// What a run that keeps its failures prints leads from the machine into the namespaces of its cluster.
func TestTheDoorsToAKeptClusterOpen(t *testing.T) {
	t.Parallel()
	cmd := viplab(t, "conform", "--proxier", "none", "--focus", "^nodeport-every-node$", "--keep-failed", "--out",
		t.TempDir())
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"n1": "192.168.7.11/24", "n2": "192.168.7.12/24", "n3": "192.168.7.13/24",
		"client": "192.168.7.201/24"}
	for lines := bufio.NewScanner(stdout); len(want) > 0 && lines.Scan(); {
		host, command, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
		if !strings.HasPrefix(strings.TrimSpace(command), "nsenter") {
			continue
		}
		out, err := exec.CommandContext(t.Context(), "sh", "-c", command+" ip -br -4 addr show eth0").CombinedOutput()
		if err != nil || want[host] == "" || !strings.Contains(string(out), want[host]) {
			t.Errorf("%s: %s: %v: %s; want its address %q", host, command, err, out, want[host])
		}
		delete(want, host)
	}
	if len(want) > 0 {
		t.Errorf("there are no commands for %v", want)
	}
	if err := cmd.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { // further signals, one of which arrives when the program is about to exit, change nothing
		for tick := time.Tick(50 * time.Microsecond); ; <-tick {
			select {
			case <-ended:
				return
			default:
				_ = cmd.Process.Signal(unix.SIGTERM) // fails if the program has ended
			}
		}
	}()
	_ = cmd.Wait() // by the interrupt
	close(ended)
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
}

func TestConformTellsAllMistakesAtOnce(t *testing.T) {
	t.Parallel()
	refused(t, "conform --proxier iptbles --ip 5 --overlay gre --pods flat --focus ( --shard 5/4",
		`--proxier: unknown proxier "iptbles", did you mean "iptables"? (there are iptables, iptables-legacy,`,
		"--ip:", "--overlay:", "--pods:", "--focus:", "--shard:")
	refused(t, "conform --list --focus ( --ip 5", "--focus:", "--ip:")
	refused(t, "conform --group hairpn --priority P7 --skip (", `unknown group "hairpn", did you mean "hairpin"?`,
		`unknown priority "P7"`, "--skip:")
	refused(t, "conform --shard auto/4", "--shard: auto/4: want a pod of an Indexed Job")
	refused(t, "conform --parallel -1", "--parallel: -1: want 1 or more")
	refused(t, "conform --shard-times there", "--shard-times requires --shard")
	refused(t, "conform --exec /no/proxy", "--exec:", "/no/proxy: no such file")
	refused(t, "scenario show hairpin-clusterIPs", `did you mean "hairpin-clusterip"?`)
	refused(t, "rules", "usage: viplab rules NODE")
	for _, args := range [][]string{{"conform", "--no-such-flag"}, {"conform", "surplus"}, {"no-such-command"},
		{"conform", "--focus", "^nothing$"}} {
		if code, _, stderr := outcome(t, args...); code != 2 || stderr == "" {
			t.Errorf("%v: exit code %d, %q; want 2 and a reason", args, code, stderr)
		}
	}
}

// A list has what the flags beside it choose, and what would run on no proxier that is named is not in it.
func TestListsObeyTheOtherFlags(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	list := func(line string) []string {
		code, stdout, stderr := outcome(t, strings.Fields(line)...)
		g.Expect(code).To(BeZero(), stderr)
		var ids []string
		for text := range strings.Lines(stdout) {
			if text[0] != ' ' {
				ids = append(ids, strings.Fields(text)[0])
			}
		}
		return ids
	}
	all := list("conform --list")
	catalogue, err := scenarios.All()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(all).To(HaveLen(len(catalogue)))
	g.Expect(list("conform --list --focus ^hairpin-")).To(HaveEach(HavePrefix("hairpin-")))
	g.Expect(append(list("conform --list --shard 1/2"), list("conform --list --shard 2/2")...)).To(ConsistOf(all))
	g.Expect(list("conform --list --skip ^hairpin-")).NotTo(ContainElement(HavePrefix("hairpin-")))
	g.Expect(list("conform --list --group hairpin --priority p0")).To(Equal([]string{"hairpin-among-many"}))
	g.Expect(list("scenario list --group hairpin")).To(Equal(list("conform --list --group hairpin")))
	g.Expect(list("conform --list --ip 4")).NotTo(ContainElement(HavePrefix("dualstack-")))
	nftables, policies := list("conform --list --proxier nftables"),
		"conform --list --proxier nftables --enforcer policy-nftables"
	g.Expect(nftables).NotTo(ContainElement(HavePrefix("ipvs-")))
	g.Expect(nftables).NotTo(ContainElement(HavePrefix("np-")))
	g.Expect(list(policies)).To(And(ContainElements(nftables), ContainElement(HavePrefix("np-"))))
	g.Expect(list("conform --list --exec x --features -sctp")).NotTo(ContainElement("sctp-clusterip-nodeport"))

	g.Expect(list("prove --list --fault ^no-masquerade$")).To(Equal([]string{"no-masquerade"}))
	g.Expect(list("prove --list --focus ^nodeport-every-node$")).To(ContainElement("nodeport-off-by-one"))
	g.Expect(list("prove --list --focus ^nodeport-every-node$")).NotTo(ContainElement("no-masquerade"))
	g.Expect(list("prove --list --proxier ipvs")).To(ContainElement(HavePrefix("ipvs-")))
	g.Expect(list("prove --list --focus ^np-default-open$ --proxier iptables")).To(BeEmpty())
	g.Expect(list("prove --list --focus ^np-default-open$ --proxier iptables --enforcer policy-nftables --pods routed")).
		To(ContainElement("second-family-lost"))
	g.Expect(list("prove --list --proxier nftables")).NotTo(ContainElement(HavePrefix("ipvs-")))
}

func TestAMissingOverlayIsBrokenAndSaysSo(t *testing.T) {
	t.Parallel()
	if !needsVM(t, "overlay ipip") {
		t.Skip("this kernel has ipip")
	}
	folder := t.TempDir()
	code, stdout, _ := outcome(t, "conform", "--proxier", "nftables,none", "--overlay", "ipip", "--focus", "^nodeport-",
		"--out", folder)
	const want = "overlay ipip: this kernel cannot do it: choose another one (auto, vxlan, direct), or load what it " +
		"needs"
	if code != 2 || strings.Count(stdout, want) != 1 || strings.Count(stdout, "BROKEN") != 1 {
		t.Errorf("exit code %d, want 2, and %q once:\n%s", code, want, stdout)
	}
	r, err := report.Read(folder)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range r.Proxiers {
		if broken := 1 - i; p.Broken != broken || p.Passed+p.Failed != 0 || p.NotRun < 10 {
			t.Errorf("%s: %+v, want %d broken, and the others not run", p.Name, p, broken)
		}
	}
}

func TestASignalEndsARunAndKeepsItsVerdicts(t *testing.T) {
	for name, send := range signals {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			folder := t.TempDir()
			cmd := viplab(t, "conform", "--proxier", "nftables", "--ip", "4", "--out", folder)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			var stdout bytes.Buffer
			cmd.Stdout = &stdout
			progress, terminal := testTerminal(t) // where progress shows each scenario that ends
			cmd.Stderr = terminal
			g.Expect(cmd.Start()).To(Succeed())
			g.Expect(terminal.Close()).To(Succeed())
			words := bufio.NewReader(progress)
			ended := 0
			for ended < 40 {
				status, err := words.ReadString('K') // of the sequence that clears the line
				g.Expect(err).NotTo(HaveOccurred())
				fmt.Sscanf(status, "%d of", &ended)
			}
			g.Expect(send(cmd.Process.Pid)).To(Succeed())
			_, _ = io.Copy(io.Discard, words) // the end of a terminal is an error
			_ = cmd.Wait()
			g.Expect(cmd.ProcessState.ExitCode()).To(Equal(2))
			g.Expect(stdout.String()).To(MatchRegexp(`(?m)^interrupted: \d+ of \d+ scenarios were judged`))
			g.Expect(stdout.String()).NotTo(Or(ContainSubstring("BROKEN"), ContainSubstring("goroutine")))
			r, err := report.Read(folder)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(r.Proxiers[0].Passed).To(BeNumerically(">=", ended)) // all but those that were skipped
			g.Expect(r.Proxiers[0].Failed).To(BeZero())
			g.Expect(r.Proxiers[0].Passed + r.Proxiers[0].Skipped).To(BeNumerically("<", len(r.Results)))
		})
	}
}

func testTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, master.Fd(), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY)
	if errno != 0 {
		t.Fatal(errno)
	}
	return master, os.NewFile(fd, "terminal")
}

// A run of one scenario in two shards leaves an empty shard, which is no failure.
func TestAnEmptyShardIsNoFailure(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	code, stdout, stderr := outcome(t, "conform", "--focus", "^nodeport-allocation-rules$", "--shard", "2/2",
		"--out", folder)
	if code != 0 || !strings.Contains(stdout, "shard 2/2 is empty") {
		t.Errorf("exit code %d:\n%s%s", code, stdout, stderr)
	}
	if r, err := report.Read(folder); err != nil || r.Suite.Shard != "2/2" || r.Suite.Whole != 1 {
		t.Errorf("%v: %+v", err, r.Suite)
	}
}

// A folder has what the newest run has shown of its scenarios, and one run at a time.
func TestAFolderHasOneRun(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	stale := filepath.Join(folder, "nodeport-allocation-rules", "none", "failure.txt")
	other := filepath.Join(folder, "nodeport-every-node", "none", "failure.txt")
	for _, file := range []string{stale, other} {
		if err := report.WriteFile(file, []byte("of an earlier run")); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"conform", "--focus", "^nodeport-allocation-rules$", "--proxier", "none", "--out", folder}
	held, err := os.Open(folder)
	if err == nil {
		err = unix.Flock(int(held.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	code, _, stderr := outcome(t, args...)
	if want := "another viplab writes into " + folder; code != 2 || !strings.Contains(stderr, want) {
		t.Errorf("with a lock: exit code %d, %q", code, stderr)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := outcome(t, args...); code != 0 {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
	if _, err := os.Stat(filepath.Dir(filepath.Dir(stale))); !os.IsNotExist(err) {
		t.Errorf("the failure of an earlier run is still there: %v", err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("the failure of another scenario is gone: %v", err)
	}
}

// TestAFocusOnNothingChecksAll: a scenario without a row matches no row, and must be reported.
func TestAFocusOnNothingChecksAll(t *testing.T) {
	g := NewWithT(t)
	all, err := scenarios.All()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(matchingScenarios(regexp.MustCompile("^no-such$"))).To(HaveLen(len(all)))
	g.Expect(matchingScenarios(regexp.MustCompile("^hairpin-clusterip$"))).To(HaveLen(1))
}

func TestTheMachineIsUntouchedByConform(t *testing.T) {
	run := func(ending hosttest.Ending) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		args := []string{"conform", "--out", t.TempDir()}
		if ending.Signal == 0 {
			args = append(args, "--focus", "^(clusterip-m|nodeport-e|base-ip-forward)")
		}
		if _, err := hosttest.Check(ctx, viplab(t, args...), ending); err != nil {
			t.Error(err)
		}
	}
	run(hosttest.Ending{})
	run(hosttest.Ending{Signal: unix.SIGINT, After: time.Second})
	for range 20 {
		run(hosttest.Ending{Signal: syscall.SIGKILL, After: rand.N(time.Second)})
	}
}

// The trace of a failure names the rule of the proxier that is at fault, in the output, in a file and in the report.
func TestConformTracesAFailure(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	_, stdout, stderr := outcome(t, "conform", "--focus", "^base-pod-and-node-no-nat$", "--proxier", "iptables", "--fault",
		"foreign-traffic-dropped", "--ip", "6", "--out", folder)
	rule := "-A KUBE-FORWARD -p tcp -m conntrack ! --ctstate DNAT -j DROP"
	if !strings.Contains(stdout, rule) {
		t.Fatalf("the output does not name the rule:\n%s%s", stdout, stderr)
	}
	var r report.Report
	data, err := os.ReadFile(filepath.Join(folder, "report.json"))
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.Results[0].Probed {
		if p.Holds {
			continue
		}
		for _, file := range []string{p.Trace, strings.TrimSuffix(p.Trace, ".json") + ".txt"} {
			if text, err := os.ReadFile(filepath.Join(folder, file)); err != nil || !strings.Contains(string(text), rule) {
				t.Errorf("%s: %s does not name the rule: %v", p.Probe, file, err)
			}
		}
		return
	}
	t.Error("the report has no row that fails")
}
