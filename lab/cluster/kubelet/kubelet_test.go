// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/lab/nstest"
	"github.com/viplab/viplab/lab/cluster/access"
	"github.com/viplab/viplab/lab/cluster/kubelet"
	"github.com/viplab/viplab/lab/cluster/store"
)

func TestAProgramRunsToItsEnd(t *testing.T) {
	w := newWorld(t)
	got := w.run("job", `echo "$0 $GREETING on $NODE $POD_IP as $(hostname)"; pwd; exit 3`,
		`, workingDir: /work/here, env: [{name: NAME, value: you}, {name: GREETING, value: "hello $(NAME) $$(NAME) $(NONE)"},
		{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}, {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]`)
	p := w.awaitPhase("job", corev1.PodFailed)
	if want := "sh hello you $(NAME) $(NONE) on n1 " + p.Status.PodIP + " as job\n/work/here"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	end := p.Status.ContainerStatuses[0].State.Terminated
	if end == nil || end.ExitCode != 3 || end.Reason != "Error" {
		t.Errorf("%+v", p.Status.ContainerStatuses)
	}
	w.run("fine", "true", "")
	w.awaitPhase("fine", corev1.PodSucceeded)
	w.pod("args", "{restartPolicy: Never, containers: [{name: c, image: busybox, args: [expr, '1', +, '1']}]}")
	w.awaitPhase("args", corev1.PodSucceeded) // the image has no entry point
}

func TestServersAndProgramsMeet(t *testing.T) {
	w := newWorld(t)
	w.pod("web", "{containers: [{name: web, image: 'nginx:1.14.2', ports: [{containerPort: 80}], readinessProbe: {httpGet: {port: 80}}}]}")
	web := w.awaitReady("web")
	if got := w.run("client", "curl --silent --max-time 20 http://"+web.Status.PodIP+"/", ""); !strings.Contains(got, `"server":"default/web"`) {
		t.Errorf("curl: %s", got)
	}
	w.pod("python", "{containers: [{name: c, image: busybox, command: [perl, -MIO::Socket::INET, -e, "+
		"'$s = IO::Socket::INET->new(LocalPort => 8000, Listen => 5, ReuseAddr => 1); while ($c = $s->accept) {print $c \"me\\n\"; close $c}'],"+
		" readinessProbe: {tcpSocket: {port: 8000}}}]}")
	w.awaitReady("python")
	conn, err := w.Containers().Dial(w.ctx, key("python"), 8000)
	nstest.Must(t, err)
	if data, err := io.ReadAll(conn); string(data) != "me\n" {
		t.Errorf("%q, %v", data, err)
	}
	// exec works beside a server inside viplab
	if got, err := w.exec("web", "", "hostname; exit 4"); got != "web" || !isExit(err, 4) {
		t.Errorf("%q, %v", got, err)
	}
}

func isExit(err error, code int) bool {
	exit := (*access.ExitError)(nil)
	return errors.As(err, &exit) && exit.Code == code
}

func TestContainersOfAPod(t *testing.T) {
	w := newWorld(t)
	w.pod("many", `{restartPolicy: Never, volumes: [{name: shared, emptyDir: {}}],
		initContainers: [
		{name: first, image: busybox, command: [sh, -c, echo 1 >/data/order], volumeMounts: [{name: shared, mountPath: /data}]},
		{name: proxy, image: busybox, restartPolicy: Always, command: [sh, -c, "echo proxy >>/data/order; trap 'echo sidecar ends; exit 0' TERM; while :; do sleep 0.1; done"],
		 startupProbe: {exec: {command: [grep, proxy, /data/order]}, periodSeconds: 1}, volumeMounts: [{name: shared, mountPath: /data}]},
		{name: second, image: busybox, command: [sh, -c, echo 2 >>/data/order], volumeMounts: [{name: shared, mountPath: /data}]}],
		containers: [
		{name: a, image: busybox, command: [sh, -c, "cat /data/order; hostname >/data/a"], volumeMounts: [{name: shared, mountPath: /data}]},
		{name: b, image: busybox, command: [sh, -c, "until [ -e /data/a ]; do sleep 0.1; done; cat /data/a"], volumeMounts: [{name: shared, mountPath: /data, readOnly: true}]}]}`)
	w.awaitPhase("many", corev1.PodSucceeded)
	if got := w.logs("many", "a", corev1.PodLogOptions{}); got != "1\nproxy\n2" {
		t.Errorf("the order: %q", got)
	}
	if got := w.logs("many", "b", corev1.PodLogOptions{}); got != "many" {
		t.Errorf("the other container: %q", got)
	}
	if got := w.logs("many", "proxy", corev1.PodLogOptions{}); got != "sidecar ends" {
		t.Errorf("the sidecar: %q", got)
	}
}

func TestAFailingInitContainerEndsThePod(t *testing.T) {
	w := newWorld(t)
	w.pod("stuck", "{restartPolicy: Never, initContainers: [{name: i, image: busybox, command: [sh, -c, exit 9]}], containers: [{name: c, image: busybox}]}")
	p := w.awaitPhase("stuck", corev1.PodFailed)
	if s := p.Status.InitContainerStatuses[0].State.Terminated; s == nil || s.ExitCode != 9 {
		t.Errorf("%+v", p.Status)
	}
}

func TestAContainerThatEndsIsRestarted(t *testing.T) {
	w := newWorld(t)
	w.pod("again", "{containers: [{name: c, image: busybox, command: [sh, -c, 'echo run; kill -9 $$ 2>/dev/null; exit 5']}]}")
	p := w.await("again", "in CrashLoopBackOff", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) == 1 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == "CrashLoopBackOff"
	})
	s := p.Status.ContainerStatuses[0]
	if s.RestartCount != 2 || s.LastTerminationState.Terminated == nil || s.LastTerminationState.Terminated.ExitCode != 5 {
		t.Errorf("%+v", s)
	}
	if got := w.logs("again", "", corev1.PodLogOptions{Previous: true}); got != "run" {
		t.Errorf("the log before: %q", got)
	}
}

// The end of a pod's process is its container's end, whoever kills it.
func TestAProcessIsKilledFromOutside(t *testing.T) {
	w := newWorld(t)
	w.pod("killed", "{containers: [{name: c, image: busybox, command: [sleep, '424242']}]}")
	w.awaitReady("killed")
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	nstest.Must(t, err)
	for _, file := range commands {
		if text, _ := os.ReadFile(file); string(text) == "sleep\x00424242\x00" {
			pid, err := strconv.Atoi(strings.Split(file, "/")[2])
			nstest.Must(t, err)
			nstest.Must(t, syscall.Kill(pid, syscall.SIGKILL))
		}
	}
	w.await("killed", "restarted", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses[0]
		return s.RestartCount == 1 && s.Ready && s.LastTerminationState.Terminated.ExitCode == 137
	})
}

func TestAnUnknownImage(t *testing.T) {
	w := newWorld(t)
	w.pod("strange", "{containers: [{name: c, image: 'example.org/strange:1'}]}")
	p := w.await("strange", "in ErrImagePull", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) == 1 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == "ErrImagePull"
	})
	if m := p.Status.ContainerStatuses[0].State.Waiting.Message; !strings.Contains(m, "under images in lab.yaml") {
		t.Error(m)
	}
	nstest.Must(t, w.Store().Delete(store.KindPod, "default", "strange"))
	w.pod("wrong", "{containers: [{name: c, image: busybox, command: [no-such-program]}], restartPolicy: Never}")
	p = w.awaitPhase("wrong", corev1.PodFailed)
	if s := p.Status.ContainerStatuses[0].State.Terminated; s.Reason != "StartError" || !strings.Contains(s.Message, "no-such-program") {
		t.Errorf("%+v", s)
	}
}

func TestAPodEndsGracefully(t *testing.T) {
	w := newWorld(t)
	w.pod("polite", `{terminationGracePeriodSeconds: 20, containers: [{name: c, image: busybox,
		command: [sh, -c, "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done"],
		lifecycle: {preStop: {exec: {command: [sh, -c, 'echo hook >/proc/1/fd/1']}}}}]}`)
	w.awaitReady("polite")
	log, out := io.Pipe()
	go func() {
		out.CloseWithError(w.Containers().Logs(w.ctx, key("polite"), "", &corev1.PodLogOptions{Follow: true}, out))
	}()
	if _, err := io.ReadFull(log, make([]byte, len("up\n"))); err != nil {
		t.Fatal(err)
	}
	nstest.Must(t, w.Store().Delete(store.KindPod, "default", "polite"))
	rest, err := io.ReadAll(log)
	if string(rest) != "hook\nbye\n" || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	w.gone("polite")
	// One that ignores SIGTERM is killed when its time is over.
	w.pod("deaf", "{terminationGracePeriodSeconds: 1, containers: [{name: c, image: busybox, command: [sleep, infinity]}]}")
	w.awaitReady("deaf")
	nstest.Must(t, w.Store().Delete(store.KindPod, "default", "deaf"))
	w.gone("deaf")
}

// gone waits until a pod does not exist, in the state or in the lab.
func (w *world) gone(name string) {
	w.Helper()
	for {
		revision := w.Store().Snapshot().Revision
		if _, ok := store.Get[*corev1.Pod](w.Store(), "default", name); !ok {
			nstest.Must(w.T, w.WaitPods(w.ctx, "default"))
			if w.Lab().Pod("default/"+name) != nil {
				w.Errorf("%s is still in the lab", name)
			}
			return
		}
		select {
		case <-w.Store().Changed(revision):
		case <-w.ctx.Done():
			w.Fatalf("%s is still there", name)
		}
	}
}

func TestProbes(t *testing.T) {
	w := newWorld(t)
	w.pod("probed", `{containers: [{name: c, image: busybox, command: [sleep, infinity],
		readinessProbe: {exec: {command: [test, -e, /tmp/ready]}, periodSeconds: 1, timeoutSeconds: 50},
		livenessProbe: {exec: {command: [test, '!', -e, /tmp/sick]}, periodSeconds: 1, failureThreshold: 1, timeoutSeconds: 50}}], terminationGracePeriodSeconds: 0}`)
	p := w.await("probed", "running", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	if condition(p, corev1.PodReady) {
		t.Error("it is ready before its probe succeeds")
	}
	if _, err := w.exec("probed", "", "touch /tmp/ready"); err != nil {
		t.Error(err)
	}
	w.awaitReady("probed")
	if _, err := w.exec("probed", "", "touch /tmp/sick"); err != nil && !isExit(err, 137) { // killed with the container
		t.Error(err)
	}
	w.await("probed", "restarted", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses[0]
		return s.RestartCount == 1 && s.State.Running != nil && s.LastTerminationState.Terminated.ExitCode == 137
	})
}

func TestImageNames(t *testing.T) {
	images := kubelet.Images{"nginx": {Dir: "short"}, "example.org/nginx": {Dir: "long"}, "tagged:2": {Dir: "tag"}}
	for name, want := range map[string]string{
		"nginx": "short", "docker.io/library/nginx:1.14.2": "short", "example.org/nginx:1": "long", "tagged:2": "tag",
		"nginx@sha256:abc": "short", "localhost:5000/nginx": "short", "tagged:3": "", "x": "",
	} {
		if got, err := images.Find(name); got.Dir != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", name, got.Dir, err)
		}
	}
}

func TestConfigMapsAndSecrets(t *testing.T) {
	w := newWorld(t)
	// The pod waits for what it refers to.
	w.pod("reader", `{restartPolicy: Never, volumes: [{name: config, configMap: {name: settings}},
		{name: all, projected: {sources: [{secret: {name: keys, items: [{key: token, path: deep/token}]}},
		{downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}]}}],
		containers: [{name: c, image: busybox, command: [sh, -c, "exec 2>&1; echo $COLOR $TOKEN $MISSING $ALL_color; cat /config/color /all/deep/token /all/labels; echo no >/config/color"],
		env: [{name: COLOR, valueFrom: {configMapKeyRef: {name: settings, key: color}}},
		{name: TOKEN, valueFrom: {secretKeyRef: {name: keys, key: token}}},
		{name: MISSING, valueFrom: {configMapKeyRef: {name: none, key: none, optional: true}}}],
		envFrom: [{prefix: ALL_, configMapRef: {name: settings}}],
		volumeMounts: [{name: config, mountPath: /config}, {name: all, mountPath: /all}]}]}`)
	w.await("reader", "waiting for a ConfigMap", func(p *corev1.Pod) bool {
		return strings.Contains(p.Status.Message, `configmap "settings" not found`)
	})
	w.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {color: blue}\n---\n" +
		"apiVersion: v1\nkind: Secret\nmetadata: {name: keys}\nstringData: {token: secret}\n")
	w.awaitPhase("reader", corev1.PodFailed)
	got := w.logs("reader", "", corev1.PodLogOptions{})
	if want := "blue secret blue\nbluesecretapp=\"reader\""; !strings.HasPrefix(got, want) || !strings.Contains(got, "Read-only") {
		t.Errorf("%q, want %q", got, want)
	}
}
