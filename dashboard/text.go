package dashboard

import (
	"fmt"
	"strings"

	"github.com/shuntmq/shunt"
)

var (
	languages     = [2]string{"en", "zh"}
	languageNames = [2]string{"English", "中文"}
)

// LangTag is the language of the page, for browsers and screen readers.
func (q *request) LangTag() string { return [2]string{"en", "zh-Hans"}[q.Lang] }

// T is a text in the user's language.
func (q *request) T(key string, args ...any) string {
	text := texts[key][q.Lang]
	switch {
	case text == "":
		return key
	case strings.Contains(text, "%"):
		return fmt.Sprintf(text, args...)
	}
	return text
}

// When is the time that matters of a message in its state.
func (q *request) When(e shunt.Entry) string {
	switch e.State {
	case shunt.StateDelay:
		return q.Ago(e.DueAt)
	case shunt.StateDead:
		return q.Ago(e.DiedAt)
	case shunt.StateDone:
		return q.Ago(e.EndedAt)
	case shunt.StateLeased:
		return q.Ago(e.LeaseEndsAt)
	}
	return q.Ago(e.EnqueuedAt)
}

// texts has every text in each of the languages.
var texts = map[string][2]string{
	"nav": {"Pages", "页面"}, "skip": {"Skip to the content", "跳到正文"},
	"overview": {"Overview", "概览"}, "channel": {"Channel", "通道"}, "channels": {"Channels", "通道"},
	"messages": {"Messages", "消息"}, "message": {"Message", "消息"}, "dead": {"Dead letters", "死信"},
	"recurring": {"Recurring", "定时消息"}, "receivers": {"Receivers", "接收者"}, "receiver": {"Receiver", "接收者"},
	"audit": {"Audit", "审计"}, "settings": {"Settings", "设置"}, "error": {"That did not work", "操作未成功"},
	"redis": {"Redis", "Redis"}, "above": {"↑ All", "↑ 全部"},

	"live": {"live", "实时"}, "seen": {"each figure looked at within %s", "每个数字均在 %s内查看过"},
	"stale":  {"The list has changed: load it again", "列表已变化：重新加载"},
	"health": {"Health", "健康状况"}, "healthy": {"Nothing is wrong.", "一切正常。"},
	"morefindings":      {"%d more", "还有 %d 项"},
	"severity.critical": {"Critical", "严重"}, "severity.warning": {"Warning", "警告"},
	"severity.notice": {"Notice", "提示"},
	"overview.hint": {"Rates, failures and p95 are of the last 10 minutes. Times are UTC.",
		"速率、失败率与 p95 取自最近 10 分钟。时间为 UTC。"},
	"nochannels": {"There is no such channel yet.", "还没有这样的通道。"}, "filter": {"Filter by name", "按名称筛选"},
	"grows": {"+%s", "+%s"}, "ago": {"%s ago", "%s前"}, "in": {"in %s", "%s后"},

	"col.channel": {"Channel", "通道"}, "col.channels": {"Channels", "通道"}, "col.waiting": {"Waiting", "等待"},
	"col.oldest": {"Oldest", "最久等待"}, "col.in": {"In/s", "入队/秒"}, "col.out": {"Out/s", "完成/秒"},
	"col.failed": {"Failed", "失败"}, "col.p95": {"Handling p95", "处理 p95"}, "col.wait95": {"Wait p95", "等待 p95"},
	"col.drain": {"Drains in", "清空需时"}, "col.delay": {"Delayed", "延迟"}, "col.leases": {"Leases", "租约"},
	"col.dead": {"Dead", "死信"}, "col.done": {"Kept outcomes", "保留结果"}, "col.suspect": {"Suspect", "可疑"},
	"col.workers": {"Workers", "工作者"}, "col.receivers": {"Receivers", "接收者"},

	"state": {"State", "状态"}, "states": {"States", "状态"}, "state.prepare": {"Ready", "就绪"},
	"state.doing": {"In hand", "处理中"}, "state.leased": {"Leased", "已租出"}, "state.delay": {"Delayed", "延迟"},
	"state.suspect": {"Suspect", "可疑"}, "state.dead": {"Dead", "死信"}, "state.done": {"Done", "已完成"},
	"count": {"Count", "数量"}, "nextdue": {"Next due in", "下次到期"}, "actions": {"Actions", "操作"},
	"happened": {"What happened", "统计"}, "range": {"Range", "范围"}, "times": {"Times", "耗时"},
	"wait": {"Wait", "等待时间"}, "handling": {"Handling", "处理时间"}, "endtoend": {"End to end", "端到端"},
	"charts": {"Over time", "走势"}, "chart.rates": {"Messages a second", "每秒消息数"},
	"chart.backlog": {"Backlog", "积压"}, "chart.table": {"The numbers of the charts", "图表数据"},
	"time": {"Time", "时间"}, "n.enqueued": {"Enqueued", "入队"}, "n.acked": {"Acked", "完成"},
	"n.retried": {"Retried", "重试"}, "n.dead": {"Died", "成为死信"}, "n.recovered": {"Recovered", "已恢复"},
	"n.timedout": {"Timed out", "超时"}, "n.expired": {"Expired", "过期"}, "n.cancelled": {"Cancelled", "取消"},
	"alive": {"alive", "存活"}, "gone": {"gone", "已失联"}, "holding": {"Holding", "持有"}, "lease": {"Lease", "租期"},
	"since": {"Since", "开始于"}, "until": {"Until", "截止"}, "worker": {"Worker", "工作者"},
	"process": {"Process", "进程"},
	"inhand":  {"In hand", "处理中"}, "noreceivers": {"Nobody receives.", "没有接收者。"},
	"morechannels": {"There are more channels: look at one by itself.", "还有更多通道：请单独查看。"},

	"f.find": {"Serial or ID", "序列号或 ID"}, "f.failure": {"Failure contains", "失败原因包含"},
	"f.type": {"Type", "类型"}, "f.idprefix": {"ID begins with", "ID 前缀"}, "f.header": {"Header", "消息头"},
	"f.attempts": {"Attempts ≥", "尝试次数 ≥"}, "search": {"Search", "搜索"}, "clear": {"Clear", "清除"},
	"notfound": {"There is no message %s, and nothing is kept of one.", "没有消息 %s，也没有保留其结果。"},
	"looked":   {"Looked at %s, and %s fit.", "查看了 %s 条，符合 %s 条。"},
	"serial":   {"Serial", "序列号"}, "type": {"Type", "类型"}, "attempts": {"Attempts", "尝试"},
	"size": {"Size", "大小"}, "payload": {"Payload", "内容"}, "failure": {"Failure", "失败原因"},
	"failureorpayload": {"Failure, or payload", "失败原因或内容"},
	"all":              {"All on this page", "本页全部"}, "bare": {"without a serial", "无序列号"},
	"nomessages": {"There is none here.", "这里没有消息。"}, "chosen": {"With those chosen:", "对所选消息："},
	"by": {"by", "推迟"}, "first": {"First ones first", "最早优先"}, "latest": {"Other end first", "从另一端开始"},
	"next":         {"Next page", "下一页"},
	"when.prepare": {"Enqueued", "入队"}, "when.doing": {"Enqueued", "入队"}, "when.leased": {"Lease ends", "租约到期"},
	"when.delay": {"Due", "到期"}, "when.suspect": {"Enqueued", "入队"}, "when.dead": {"Died", "死亡时间"},
	"when.done": {"Ended", "结束"},

	"download": {"Download", "下载"}, "cut": {"Only the beginning is shown: download the rest.", "仅显示开头：其余请下载。"},
	"masked": {"hidden by the program's mask", "已被程序遮蔽"}, "shown": {"shown", "可见"},
	"nopayload": {"It has no payload.", "没有内容。"}, "result": {"Result", "结果"},
	"lastfailure": {"Last failure", "最后一次失败"}, "life": {"Life", "经历"}, "details": {"Details", "详情"},
	"headers": {"Headers", "消息头"}, "name": {"Name", "名称"}, "value": {"Value", "值"},
	"life.enqueued": {"Enqueued", "入队"}, "life.attempts": {"Attempts that are over:", "已结束的尝试："},
	"life.recoveries": {"Recovered from dead processes:", "从死亡进程恢复："},
	"life.waits":      {"Waits to be taken", "等待被取走"},
	"life.suspect":    {"Suspect: processes died holding it", "可疑：持有它的进程曾死亡"},
	"life.due":        {"Due", "到期"}, "life.doing": {"In a worker's hands", "正由工作者处理"},
	"life.leased":    {"Leased", "已租出"},
	"life.leaseends": {"Lease ends", "租约到期"}, "life.died": {"Died", "成为死信"}, "life.ended": {"Ended", "结束"},
	"life.kept": {"Outcome is kept until", "结果保留至"}, "life.cancelled": {"Cancel was asked for", "已请求取消"},
	"life.unique": {"ID is taken until", "ID 占用至"},

	"lately": {"Last 10 min", "最近 10 分钟"}, "nodead": {"No dead letters.", "没有死信。"},
	"groups": {"Groups", "分组"}, "firsttime": {"First", "首次"}, "lasttime": {"Last", "最近"},
	"nofailure": {"without a failure", "无失败原因"}, "example": {"Example", "示例"},
	"grouped":        {"The latest %s were looked at; there are more.", "仅查看了最近的 %s 条；还有更多。"},
	"rest":           {"%s more are in groups that are not shown.", "另有 %s 条在未显示的分组中。"},
	"ofthosethatfit": {"All that fit the search:", "符合搜索条件的全部："},
	"bulk":           {"Bulk action", "批量操作"}, "progress": {"Progress", "进度"},
	"job.running": {"%s: runs, %s of %s", "%s：进行中，%s / %s"},
	"job.stopped": {"%s: stopped after %s of %s", "%s：已停止，%s / %s"},
	"job.ended":   {"%s: done, %s of %s", "%s：完成，%s / %s"},
	"job.failed":  {"%s: failed after %s of %s", "%s：失败，%s / %s"},
	"job.refused": {", %s refused", "，%s 条被拒绝"},

	"spec": {"When", "时间表"}, "nextruns": {"Next runs", "下次运行"}, "lastrun": {"Last run", "上次运行"},
	"runs": {"Runs", "次数"}, "missed": {"Missed", "错过时"}, "paused": {"paused", "已暂停"},
	"norecurring": {"Nothing recurs.", "没有定时消息。"},

	"redis.server": {"Server", "服务器"}, "redis.memory": {"Memory", "内存"}, "redis.clients": {"Clients", "客户端"},
	"redis.persistence": {"Persistence", "持久化"}, "slowlog": {"Slow log", "慢日志"}, "took": {"Took", "耗时"},
	"command": {"Command", "命令"}, "client": {"Client", "客户端"}, "noslow": {"Nothing was slow.", "没有慢命令。"},
	"nopool": {"The program has given no Pool, so INFO and the slow log are not shown.",
		"程序未提供 Pool，因此不显示 INFO 与慢日志。"},

	"by.who": {"Who", "操作者"}, "action": {"Action", "操作"}, "noaudit": {"Nobody has done anything yet.", "还没有任何操作。"},
	"theme": {"Theme", "主题"}, "theme.auto": {"As the system", "跟随系统"}, "theme.light": {"Light", "浅色"},
	"theme.dark": {"Dark", "深色"}, "language": {"Language", "语言"}, "save": {"Save", "保存"},
	"whoami": {"Who am I", "我是谁"}, "role": {"Role", "角色"}, "role.viewer": {"viewer", "只读"},
	"role.operator": {"operator", "操作员"}, "streams": {"Live pages now", "当前实时页面"},
	"keys": {"Keys", "按键"}, "key.slash": {"to the search", "转到搜索"}, "key.jk": {"next and previous row", "下一行与上一行"},
	"key.esc": {"from a question back", "从确认页返回"},

	"verb.retry": {"Retry", "重试"}, "verb.delete": {"Delete", "删除"}, "verb.cancel": {"Cancel it", "取消消息"},
	"verb.postpone": {"Postpone", "推迟"}, "verb.promote": {"Run now", "立即到期"}, "verb.retry-all": {"Retry all", "全部重试"},
	"verb.delete-all": {"Delete all", "全部删除"}, "verb.promote-all": {"Run all now", "全部立即到期"},
	"verb.cancel-all": {"Cancel all", "全部取消"}, "ofall": {"All in this state:", "此状态的全部消息："},
	"did.cancel-all": {"Begun for %s.", "已开始处理 %s 条。"},
	"confirm.cancel-all": {"Cancel %s messages of %s in the state “%s”?",
		"取消通道 %[2]s 中状态为“%[3]s”的 %[1]s 条消息？"},
	"verb.purge": {"Purge", "清空"}, "verb.stop-job": {"Stop", "停止"}, "verb.resume-job": {"Go on", "继续"},
	"verb.run": {"Run now", "立即运行"}, "verb.pause": {"Pause", "暂停"}, "verb.resume": {"Resume", "恢复"},
	"did.retry": {"%s retried.", "已重试 %s 条。"}, "did.delete": {"%s deleted.", "已删除 %s 条。"},
	"did.cancel": {"%s cancelled.", "已取消 %s 条。"}, "did.postpone": {"%s postponed.", "已推迟 %s 条。"},
	"did.promote": {"%s due now.", "%s 条立即到期。"}, "did.retry-all": {"Begun for %s.", "已开始处理 %s 条。"},
	"did.delete-all": {"Begun for %s.", "已开始处理 %s 条。"}, "did.promote-all": {"Begun for %s.", "已开始处理 %s 条。"},
	"did.purge": {"Begun for %s.", "已开始处理 %s 条。"}, "did.stop-job": {"It stops.", "正在停止。"},
	"did.resume-job": {"It goes on with %s.", "继续处理 %s 条。"}, "did.run": {"Enqueued.", "已入队。"},
	"did.pause": {"Paused.", "已暂停。"}, "did.resume": {"Resumed.", "已恢复。"},

	"confirm": {"Are you sure?", "确定吗？"}, "no": {"No, go back", "不，返回"},
	"confirm.forgood":     {"This cannot be undone.", "此操作无法撤销。"},
	"confirm.atleast":     {"At least (after a look at %s):", "至少（查看 %s 条后）："},
	"confirm.delete":      {"Delete %s messages?", "删除 %s 条消息？"},
	"confirm.cancel":      {"Cancel %s messages?", "取消 %s 条消息？"},
	"confirm.delete.one":  {"Delete this message?", "删除这条消息？"},
	"confirm.cancel.one":  {"Cancel this message?", "取消这条消息？"},
	"confirm.retry-all":   {"Retry %[1]s dead letters of %[2]s?", "重试通道 %[2]s 的 %[1]s 条死信？"},
	"confirm.delete-all":  {"Delete %[1]s dead letters of %[2]s?", "删除通道 %[2]s 的 %[1]s 条死信？"},
	"confirm.promote-all": {"Make %[1]s delayed messages of %[2]s due now?", "让通道 %[2]s 的 %[1]s 条延迟消息立即到期？"},
	"confirm.purge": {"Delete all %s messages of %s in the state “%s”?",
		"删除通道 %[2]s 中状态为“%[3]s”的全部 %[1]s 条消息？"},

	"finding.unreadable": {"cannot be read", "无法读取"}, "finding.no-counts": {"no counts", "没有统计"},
	"finding.nobody-takes": {"nobody takes", "无人接收"}, "finding.backlog-grows": {"the backlog grows", "积压增长"},
	"finding.backlog": {"a long backlog", "积压较多"}, "finding.nothing-ends": {"nothing ends", "没有消息完成"},
	"finding.overdue":       {"delayed messages are overdue", "延迟消息逾期"},
	"finding.lease-overdue": {"a lease is overdue", "租约逾期"},
	"finding.suspects":      {"processes die", "进程死亡"}, "finding.failing": {"most handlings fail", "多数处理失败"},
	"finding.dying": {"messages die", "消息成为死信"}, "finding.dead-full": {"dead is full", "死信已满"},
	"finding.late-verdicts": {"verdicts come late", "结论迟到"}, "finding.eviction": {"Redis evicts", "Redis 会淘汰数据"},
	"finding.memory":      {"Redis is almost full", "Redis 内存将满"},
	"finding.persistence": {"Redis cannot save", "Redis 无法持久化"},
	"finding.no-aof":      {"no append-only file", "未启用 AOF"}, "finding.replica": {"a replica", "这是副本"},
}
