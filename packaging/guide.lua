-- SPDX-License-Identifier: BSD-3-Clause
-- guide.lua - a filter of pandoc's for packaging/guide: pictures become part of the page; links to
-- files become links to their places in it, or plain text if they are not in it; names of manual
-- pages become links to the index.
local places, manuals = {}, {}

-- What raw HTML has marked: <div id="page:FILE">, <span id="man:NAME.SECTION">.
local function marks(element)
    for id in element.text:gmatch('id="([^"]*)"') do
        local file, manual = id:match("^page:(.*)"), id:match("^man:(.*)")
        if file then places[file] = "#" .. id end
        if manual then manuals[manual] = "#" .. id end
    end
end

local function read(name)
    name = name:gsub("^%.%./", "")
    local file = io.open("docs/" .. name, "r") or io.open("bench/results/" .. name, "r")
    assert(file and name:match("%.svg$"), "no picture " .. name .. " in docs/ or bench/results/")
    local text = file:read("a")
    file:close()
    return text
end

local function paragraph(p)
    if #p.content ~= 1 or p.content[1].t ~= "Image" then return nil end
    local image = p.content[1]
    return pandoc.RawBlock("html", "<figure>" .. read(image.src) .. "<figcaption>" ..
        pandoc.utils.stringify(image.caption) .. "</figcaption></figure>")
end

local function link(l)
    if l.target:match("^https?://") or l.target:match("^#") then return nil end
    local file = l.target:gsub("#.*", ""):gsub("^%.%./", "")
    local place = places[file] or places["docs/" .. file] or places["bench/" .. file]
    if not place then
        local there = false
        for _, dir in ipairs({ "", "docs/", "bench/", "bench/results/" }) do
            local f = io.open(dir .. file, "r")
            if f then f:close() there = true end
        end
        assert(there, "a link to " .. l.target .. ", which is not there")
        return l.content
    end
    l.target = place
    return l
end

-- "see quickmine-set(1)," is one word to pandoc.
local function word(s)
    local before, name, section, after = s.text:match("^(.-)([%a][%w_-]*)%((%d)%)(.*)$")
    local place = name and manuals[name .. "." .. section]
    if not place then
        assert(not (name and name:match("qmctx") or name and name:match("^quickmine")),
            "there is no manual page " .. s.text)
        return nil
    end
    return { pandoc.Str(before), pandoc.Link(name .. "(" .. section .. ")", place), pandoc.Str(after) }
end

return {
    { RawBlock = marks, RawInline = marks },
    { Para = paragraph },
    { Link = link },
    -- Not within links: those have been made.
    { Str = word },
}
