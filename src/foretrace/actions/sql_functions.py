"""Functions in queries: those that are known to look only. A function that somebody wrote may change anything."""

from __future__ import annotations

import re

from foretrace.actions.call_facts import split_words

_CALLED = re.compile(
    r"(\)\s*(?:AS\s+)?|\bAS\s+|\bINDEX\s+)?((?<![\w$])(?<![\w$.]\.)[^\W\d][\w$.]*|'')\s*\(", re.IGNORECASE
)
"""A whole name before a bracket; behind another bracket, or AS, it names columns."""
_NAMED = re.compile(r"\b([A-Za-z_]\w*)\s*\([\w\s,]{0,500}\)\s+AS\s*(?:(?:NOT\s+)?MATERIALIZED\s*)?\(", re.IGNORECASE)
"""A query that has a name, and names for its columns."""
_WORDS = split_words(
    "in values and or not exists over as any all some from join using on where by case when then else select distinct"
    " union except intersect limit offset like ilike filter group within partition rows range groups between lateral"
    " having with recursive order interval end unnest table is is_null set grouping sets rollup cube if escape top"
    " explain analyze verbose costs buffers timing format describe show pragma materialized"
    # Types.
    " varchar nvarchar char nchar character varying numeric decimal float double timestamp timestamptz time bit varbit"
    " binary varbinary number int integer bigint datetime array struct map row vector"
)
"""Words of the language before a bracket."""
_FUNCTIONS = split_words(
    # Aggregates and windows.
    "count sum avg min max total group_concat string_agg array_agg list json_agg jsonb_agg json_object_agg"
    " jsonb_object_agg json_group_array json_group_object bool_and bool_or every bit_and bit_or bit_xor stddev"
    " stddev_pop stddev_samp std variance var_pop var_samp corr covar_pop covar_samp median mode percentile_cont"
    " percentile_disc approx_count_distinct quantile quantile_cont arg_min arg_max any_value first last row_number rank"
    " dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value listagg countif sumif"
    # Conditions and types.
    " coalesce nullif ifnull nvl iif isnull greatest least cast try_cast convert try_convert safe_cast typeof pg_typeof"
    " to_char to_number to_date to_timestamp to_json to_jsonb row_to_json decode nvl2 choose"
    # Texts.
    " lower upper length len char_length character_length octet_length substr substring left right trim ltrim rtrim"
    " btrim replace concat concat_ws instr position locate strpos charindex reverse repeat lpad rpad initcap translate"
    " ascii chr hex unhex quote quote_ident quote_literal printf format soundex regexp regexp_replace regexp_matches"
    " regexp_match regexp_like regexp_substr regexp_extract regexp_count regexp_instr split_part string_to_array"
    " regexp_split_to_table regexp_split_to_array starts_with ends_with contains md5 sha1 sha2 sha256 encode"
    " glob similarity levenshtein substring_index find_in_set field elt space unicode stuff string_split"
    # Numbers.
    " abs ceil ceiling floor round trunc truncate sign sqrt cbrt power pow exp ln log log2 log10 mod div random rand pi"
    " sin cos tan asin acos atan atan2 degrees radians width_bucket generate_series generate_subscripts"
    # Dates.
    " now date time datetime julianday strftime strptime unixepoch timediff current_date current_time current_timestamp"
    " localtime localtimestamp sysdate getdate getutcdate curdate curtime utc_timestamp utc_date date_trunc date_part"
    " datepart datename date_add date_sub date_diff datediff dateadd date_format str_to_date extract age make_date"
    " make_time make_timestamp make_interval to_days from_unixtime unix_timestamp timestampdiff timestampadd year month"
    " day hour minute second week weekday weekofyear quarter dayofweek dayofmonth dayofyear dayname monthname last_day"
    " eomonth epoch justify_days justify_hours clock_timestamp statement_timestamp transaction_timestamp isfinite"
    # JSON, and what is there.
    " json_extract json_array_length json_type json_valid json_each json_object_keys array_length array_to_string"
    " version database schema user current_database current_schema current_user session_user changes row_count"
)
"""Functions of the usual databases that change nothing."""


def calls_unknown_function(code: str) -> bool:
    """Whether a query calls a function that is not known to look only.

    Args:
        code: The query without comments, and with `''` for texts and quoted names.
    """
    named = {match[1].lower() for match in _NAMED.finditer(code)}
    return any(
        not match[1] and match[2].lower().rpartition(".")[2] not in named | _WORDS | _FUNCTIONS
        for match in _CALLED.finditer(code)
    )
