// SPDX-License-Identifier: Apache-2.0

package articles

// word are what the page says, by language.
var word = map[string]Words{
	"en": {
		"lab": "In the lab", "drawn": "Drawn from the rules that packets of the lab met:",
		"article": "article", "viplab": "lesson",
	},
	"ko": {
		"lab": "랩에서는", "drawn": "랩의 패킷이 실제로 만난 규칙으로 그린 그림:",
		"article": "글", "viplab": "레슨",
	},
}

// heads are the first section of the page, with the numbers of exhibits, of lines that are the same, and of others.
var heads = Words{"en": headEN, "ko": headKO}

const headEN = `# The four articles beside the lessons

The lessons follow [four articles](README.md#the-articles). This page sets each table, listing, manifest and diagram of
theirs beside what a lesson shows. A program makes it from the recorded output of the lessons: %d exhibits, with %d
lines that are the same in both, %d boxes, arrows and sentences that a line of a lesson shows, and %d that differ.

| before a line | |
|---|---|
| = | The program has compared both: they are the same up to names, addresses, ports and counters. |
| → | The article draws this, or says it in a sentence. The line of the lesson, which its authors chose, shows it. |
| a, b, ... | Both differ, or one of them is missing. The reason stands below the table. |

Names that differ have the same placeholder on both sides (IP1, KUBE-SVC-1), and the program checks that lines which are
the same agree on what each placeholder stands for. Lines of a lesson that are about other Services, pods and nodes than
the article's are left out. These spellings count as the same:

| printed | compared as |
|---|---|
| columns by spaces, numbers of packets and bytes, the columns opt, in and out | left out |
| the protocols 0, 6, 17 | all, tcp, udp |
| anywhere, dpt:www | 0.0.0.0/0, dpt:80 |
| (24 references), References: 3, [0:0] | (N references), References: N, left out |
| the comment "default/web: cluster IP", for a port without a name | "default/web cluster IP" |
| probability 0.33332999982 | four digits |
| ages, times, hashes in names of pods, uids, resource versions | AGE, TIME, HASH, UID, N |
| prompts, the # before output, dashes of any length | left out, left out, -- |
| the five lines of article 2 that show the packet, and those of trace | destination, port and mark |
| lines of the kernel's log | devices, addresses, ports, protocol and mark |
| manifests | a line for each field |

The copies of the articles that were at hand have no pictures. What a picture shows is taken from the text around it,
and its table has a row for each box and arrow that the text names.
`

const headKO = `# 네 편의 글과 레슨

레슨은 [네 편의 글](README.md#the-articles)을 따라갑니다. 이 문서는 글에 나오는 모든 표, 출력, 매니페스트, 그림을 레슨의
출력과 나란히 놓습니다. 레슨의 기록된 출력에서 프로그램이 만든 문서입니다. 항목은 %d개이고, 양쪽이 같은 줄이 %d개,
레슨의 줄이 보여 주는 상자, 화살표, 문장이 %d개, 다른 줄이 %d개입니다.

| 줄 앞 | |
|---|---|
| = | 프로그램이 양쪽을 비교했습니다. 이름, 주소, 포트, 카운터를 빼면 같습니다. |
| → | 글이 그림이나 문장으로 말하는 것입니다. 레슨을 쓴 사람이 그것을 보여 주는 줄을 골랐습니다. |
| a, b, ... | 양쪽이 다르거나 한쪽에 없습니다. 이유는 표 아래에 있습니다. |

서로 다른 이름은 양쪽에서 같은 기호로 바꾸었고(IP1, KUBE-SVC-1), 같은 줄끼리는 기호가 같은 대상을 가리키는지 프로그램이
확인합니다. 글과 다른 Service, 파드, 노드에 관한 레슨의 줄은 뺐습니다. 다음 표기는 같은 것으로 봅니다.

| 출력 | 비교할 때 |
|---|---|
| 칸 사이의 공백, 패킷과 바이트 수, opt, in, out 열 | 뺌 |
| 프로토콜 0, 6, 17 | all, tcp, udp |
| anywhere, dpt:www | 0.0.0.0/0, dpt:80 |
| (24 references), References: 3, [0:0] | (N references), References: N, 뺌 |
| 이름 없는 포트의 주석 "default/web: cluster IP" | "default/web cluster IP" |
| probability 0.33332999982 | 소수점 아래 네 자리 |
| 나이(AGE), 시각, 파드 이름의 해시, uid, resourceVersion | AGE, TIME, HASH, UID, N |
| 프롬프트, 출력 앞의 #, 길이가 다른 줄표 | 뺌, 뺌, -- |
| 두 번째 글에서 패킷을 나타낸 다섯 줄과 trace의 줄 | 목적지, 포트, 마크 |
| 커널 로그의 줄 | 장치, 주소, 포트, 프로토콜, 마크 |
| 매니페스트 | 필드마다 한 줄 |

구할 수 있었던 글의 사본에는 그림이 없습니다. 그래서 그림의 내용은 앞뒤의 글에서 가져왔고, 글이 말하는 상자와 화살표마다
표에 줄을 하나씩 두었습니다.
`
